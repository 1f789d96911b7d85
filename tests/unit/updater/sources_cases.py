"""Spellings of apt's sources and configuration that switch authentication off, and their twins that don't.

Tables only: the unit test reads them with our parser, the device test asks the real apt.
"""

_TRUE = ("yes", "true", "with", "on", "enable", "YES", "True", "1", "01", "0x1", "+1")
_FALSE = ("no", "false", "without", "off", "disable", "0", "2", "-1", "y", "yes,no", "maybe")

LINES_ON = [
    *(f"deb [trusted={value}] {{uri}} stable main" for value in _TRUE),
    "deb [ trusted=yes ] {uri} stable main",
    "deb\t[trusted=yes]\t{uri}\tstable\tmain",
    "  deb [trusted=yes] {uri} stable main",
    "deb [arch=amd64 trusted=yes] {uri} stable main",
    "deb [trusted=yes arch=amd64 lang=en] {uri} stable main # a comment",
    "deb [arch=amd64  trusted=yes  ]   {uri} stable main",
    'deb [trusted="yes"] {uri} stable main',
    'deb ["trusted=yes"] {uri} stable main',
    "deb [tr%75sted=yes] {uri} stable main",
    "deb [trusted=%79es] {uri} stable main",
    "deb [trusted=no trusted=yes] {uri} stable main",
    "deb-src [trusted=yes] {uri} stable main",
    "deb [trusted=yes] {uri} ./",
    "deb [allow-insecure=yes] {uri} stable main",
    "deb [allow-weak=yes] {uri} stable main",
    "deb [allow-downgrade-to-insecure=yes] {uri} stable main",
    "deb [trusted=yes] {uri} stable main\r",
]
LINES_OFF = [
    *(f"deb [trusted={value}] {{uri}} stable main" for value in _FALSE),
    "deb {uri} stable main",
    "deb [arch=amd64 signed-by=/usr/share/keyrings/x.gpg] {uri} stable main",
    "# deb [trusted=yes] {uri} stable main",
    "#deb [trusted=yes] {uri} stable main",
    "  # deb [trusted=yes] {uri} stable main",
    "deb {uri} stable main # [trusted=yes]",
    "deb {uri} stable trusted=yes",
    "deb [Trusted=yes] {uri} stable main",
    "deb [untrusted=yes] {uri} stable main",
    "deb [check-valid-until=no check-date=no] {uri} stable main",
    "",
]

_STANZA = "Types: deb\nURIs: {uri}\nSuites: stable\nComponents: main\n"
DEB822_ON = [
    *(f"{_STANZA}Trusted: {value}\n" for value in _TRUE),
    f"{_STANZA}trusted: yes\n",
    f"{_STANZA}TRUSTED:yes\n",
    f"{_STANZA}Trusted:\tyes  \n",
    f"{_STANZA}Trusted : yes\n",
    f"{_STANZA}Trusted:\n yes\n",
    f"{_STANZA}# why\nTrusted: yes\n",
    f"{_STANZA}Trusted:\n# why\n yes\n",
    f"{_STANZA}Trusted: yes",
    f"Trusted: yes\n{_STANZA}",
    f"Enabled: yes\n{_STANZA}Trusted: yes\n",
    f"Enabled: maybe\n{_STANZA}Trusted: yes\n",
    f"Enabled: no\n{_STANZA}Trusted: yes\nEnabled: yes\n",
    f"{_STANZA}Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n AAAA\nTrusted: yes\n",
    f"{_STANZA}Trusted: yes\r\n",
    # apt documents these for this format, too.
    f"{_STANZA}Allow-Insecure: yes\n",
    f"{_STANZA}Allow-Weak: yes\n",
    f"{_STANZA}Allow-Downgrade-To-Insecure: yes\n",
]
DEB822_OFF = [
    *(f"{_STANZA}Trusted: {value}\n" for value in _FALSE),
    _STANZA,
    *(
        f"Enabled: {value}\n{_STANZA}Trusted: yes\n"
        for value in ("no", "NO", "false", "off", "0", "without", "disable")
    ),
    f"{_STANZA}Trusted: yes\nEnabled:\n no\n",
    f"{_STANZA}#Trusted: yes\n",
    f"# {_STANZA.replace(chr(10), chr(10) + '# ')}Trusted: yes\n",
    f"{_STANZA}X-Trusted: yes\n",
    f"{_STANZA}X-Note: what follows is none\n Trusted: yes\n",
    f"{_STANZA}Trusted: yes\n no\n",
    f"{_STANZA}Check-Valid-Until: no\n",
    "",
]

CONFIG_ON = [
    *(f'APT::Get::AllowUnauthenticated "{value}";' for value in _TRUE),
    'APT::Get::allowunauthenticated "true";',
    'APT::Get::Force-Yes "1";',
    'Acquire::AllowInsecureRepositories "1";',
    'Acquire::AllowWeakRepositories "yes";',
    'Acquire::AllowDowngradeToInsecureRepositories "true";',
    'Binary::apt-get::APT::Get::AllowUnauthenticated "1";',
    'Binary::apt-get::Acquire::AllowInsecureRepositories "true";',
    'APT::Sources::With:: "/srv/Packages";',
    'APT::Key::gpgvcommand "/usr/local/bin/always-good";',
    'Binary::apt-get::Dir::Etc::sourceparts "/srv/elsewhere";',
]
CONFIG_OFF = [
    *(f'APT::Get::AllowUnauthenticated "{value}";' for value in _FALSE),
    'Acquire::AllowInsecureRepositories "0";',
    'Acquire::AllowWeakRepositories "0";',
    'Acquire::AllowDowngradeToInsecureRepositories "0";',
    'Acquire::AllowReleaseInfoChange "true";',
    'Binary::apt::APT::Get::AllowUnauthenticated "1";',
    'Binary::apt::APT::Get::Upgrade-Allow-New "1";',
    'APT::Key::gpgvcommand "";',
    'APT::Sources::With "";',
    'APT::Get::Assume-Yes "true";',
    'APT::Authentication::TrustCDROM "true";',
    'Dir::Etc::sourceparts "sources.list.d";',
    'DPkg::Post-Invoke:: "echo APT::Get::AllowUnauthenticated \\"1\\"";',
]
