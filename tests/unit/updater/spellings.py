"""Spellings by which apt's sources and configuration may switch authentication off, or look as if
they did.

Generated from seeds: option, white space, quoting, boolean, both formats of sources, both ways to
nest an option. Which of them counts is the real apt's to say, on a device. `{uri}` is the
repository.
"""

_BOOLEANS = (
    *(
        "yes",
        "true",
        "with",
        "on",
        "enable",
        "YES",
        "True",
        "1",
        "01",
        "0x1",
        "+1",
        "0b1",
        "0B1",
        "0o1",
        "1.0",
        "1 ",
    ),
    *(
        "no",
        "false",
        "without",
        "off",
        "disable",
        "0",
        "2",
        "-1",
        "0x",
        "0x0",
        "y",
        "yes,no",
        "no,yes",
        "maybe",
        "",
    ),
    *(
        "ye\u017f",
        "fal\u017fe",
        "\uff59\uff45\uff53",
        "yes\0",
        "no\0",
        "yes\u00a0",
        "no\u00a0",
        "\u00a0no",
        "\u00a0yes",
    ),
    *("\x85no", "\u2028no", "\u2028yes", "no\r", "yes\r", "\ryes", "\vyes", "\fyes", "yes\v"),
)
_FEW = ("yes", "no", "1", "0x1", "0b1", "no\u00a0")
_GAPS = ("\t", "  ", "\r", "\v", "\f", "\u00a0", "\u2028", "")
_END = "{uri} stable main"

LINES = list(
    dict.fromkeys(
        [
            *(f"deb [trusted={value}] {_END}" for value in _BOOLEANS),
            *(f"deb{gap}[trusted=yes] {_END}" for gap in _GAPS),
            *(f"deb [{gap}trusted=yes{gap}] {_END}" for gap in _GAPS),
            *(f"deb [trusted{gap}=yes] {_END}" for gap in _GAPS),
            *(f"deb [trusted={gap}yes] {_END}" for gap in _GAPS),
            *(f"deb [arch=amd64{gap}trusted=yes] {_END}" for gap in _GAPS),
            *(f"{gap}deb [trusted=yes] {_END}" for gap in _GAPS),
            *(
                f'deb [trusted="{gap}{value}"] {_END}'
                for gap in ("", "\t", " ", "\v")
                for value in _FEW
            ),
            *(f'deb ["trusted={gap}{value}"] {_END}' for gap in ("", "\t", " ") for value in _FEW),
            *(
                f"deb [trusted={gap}{value}] {_END}"
                for gap in ("%0a", "%09", "%20", "%00", "%0d")
                for value in _FEW
            ),
            *(
                f"deb [{name}=yes] {_END}"
                for name in ("Trusted", "TRUSTED", "tr%75sted", "%74rusted", "untrusted")
            ),
            *(f"deb [trusted{sign}yes] {_END}" for sign in ("+=", "-=", ":=", "==", ":", " ")),
            f"deb [trusted=%79es] {_END}",
            f"deb [trusted=no trusted=yes] {_END}",
            f"deb [trusted=yes trusted=no] {_END}",
            f"deb [lang=en] [trusted=yes] {_END}",
            f"deb [lang=en][trusted=yes] {_END}",
            f"deb [arch=amd64,trusted=yes] {_END}",
            f"deb [arch=amd64%0aX:y trusted=yes] {_END}",
            f"deb [trusted=yes arch=amd64 lang=en] {_END} # a comment",
            f"deb-src [trusted=yes] {_END}",
            f"deb [allow-insecure=yes] {_END}",
            f"deb [allow-insecure=yes allow-weak=yes allow-downgrade-to-insecure=yes] {_END}",
            f"deb [allow-insecure=0x1] {_END}",
            "deb [trusted=yes] {uri} ./",
            f"deb [trusted=yes] {_END}\r",
            f"# one\rdeb [trusted=yes] {_END}",
            f"# deb [trusted=yes] {_END}",
            f"deb {_END} # [trusted=yes]",
            f"deb {_END} trusted=yes",
            f"deb [signed-by=/dev/null trusted=yes] {_END}",
            f"deb [trusted=yes {_END}",
            f"deb {_END}",
            "",
        ]
    )
)

_STANZA = "Types: deb\nURIs: {uri}\nSuites: stable\nComponents: main\n"
_BETWEEN = ("", " ", "\t", "\v", "\f", "\u00a0", "\r", "\n ", "\n\t", "\r\n ", "\n# why\n ", "\n\v")

STANZAS = list(
    dict.fromkeys(
        [
            *(f"{_STANZA}Trusted: {value}\n" for value in _BOOLEANS),
            *(f"{_STANZA}Trusted:{gap}yes\n" for gap in _BETWEEN),
            *(f"{_STANZA}Trusted{gap}: yes\n" for gap in _BETWEEN[:7]),
            *(f"{_STANZA}{gap}Trusted: yes\n" for gap in _BETWEEN[:7]),
            *(f"{_STANZA}Trusted: yes{gap}\n" for gap in _BETWEEN[:7]),
            *(f"Enabled: {value}\n{_STANZA}Trusted: yes\n" for value in _BOOLEANS),
            *(f"Enabled:{gap}no\n{_STANZA}Trusted: yes\n" for gap in _BETWEEN),
            *(
                f"{_STANZA}{name}: yes\n"
                for name in ("trusted", "TRUSTED", "X-Trusted", "Tru\u017fted", "Trusted-")
            ),
            *(
                f"{_STANZA}{name}: yes\n"
                for name in ("Allow-Insecure", "Allow-Weak", "Allow-Downgrade-To-Insecure")
            ),
            *(
                f"{_STANZA}{gap}Trusted: yes\n"
                for gap in ("\n", "\n\n", " \n", "\t\n", "\r\n", "# why\n", "\ufeff")
            ),
            *(
                f"{first}{_STANZA}Trusted: yes\n"
                for first in ("\n", "\ufeff", "# x\n", "# x\r", "#\n\n", "Enabled: no\n\n")
            ),
            f"Trusted: yes\n{_STANZA}",
            f"{_STANZA}Trusted: yes",
            f"{_STANZA}Trusted: yes\nTrusted: no\n",
            f"{_STANZA}Trusted: no\nTrusted: yes\n",
            f"Enabled: no\n{_STANZA}Trusted: yes\nEnabled: yes\n",
            f"Enabled: yes\n{_STANZA}Trusted: yes\nEnabled: no\n",
            f"{_STANZA}Trusted: yes\r\n".replace("\n", "\r\n"),
            f"{_STANZA}Trusted: yes\r".replace("\n", "\r"),
            f"{_STANZA}Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n AAAA\nTrusted: yes\n",
            f"{_STANZA}X-Note: what follows is of this field\n Trusted: yes\n",
            f"# {_STANZA.replace(chr(10), chr(10) + '# ')}Trusted: yes\n",
            f"{_STANZA}#Trusted: yes\n",
            _STANZA,
        ]
    )
)

_SWITCHES = (
    "AllowInsecureRepositories",
    "AllowWeakRepositories",
    "AllowDowngradeToInsecureRepositories",
)
_BOTH = 'Acquire::AllowInsecureRepositories "true";\n'

OPTIONS = list(
    dict.fromkeys(
        [
            *(
                f'Acquire::AllowInsecureRepositories "{value}";'
                for value in _BOOLEANS
                if "\0" not in value
            ),
            *(
                f'{name} "1";'
                for name in (
                    "acquire::allowinsecurerepositories",
                    "ACQUIRE::AllowInsecureRepositories",
                )
            ),
            *(f'Binary::apt-get::Acquire::{name} "true";' for name in _SWITCHES),
            *(
                f'binary {{ apt-get {{ acquire {{ {name.lower()} "on"; }}; }}; }};'
                for name in _SWITCHES
            ),
            f'Acquire {{ {_SWITCHES[0]} "yes"; }};',
            f'Acquire {{ {_SWITCHES[0]} "yes" }}',
            f'{_SWITCHES[0]} "yes";',
            f'Acquire::{_SWITCHES[0]} "1"; // why',
            f'// Acquire::{_SWITCHES[0]} "1";',
            f'/* */ Acquire::{_SWITCHES[0]} /* */ "1";',
            f'Acquire::{_SWITCHES[0]} "1";\n#clear Acquire::{_SWITCHES[0]};',
            f'Acquire::{_SWITCHES[0]} "1";\nAcquire::{_SWITCHES[0]} "0";',
            f"Acquire::{_SWITCHES[0]} 1;",
            f"Acquire::{_SWITCHES[0]}\t'1';",
            '#include "/srv/unsigned/included";',
            '#INCLUDE "/srv/unsigned/included";',
            'APT::Sources::With:: "/srv/unsigned/Packages";',
            'APT::Sources::With "/srv/unsigned/Packages";',
            'APT::Sources::With::local "/srv/unsigned/Packages";',
            'APT::Sources::With { local "/srv/unsigned/Packages"; };',
            'APT { Sources { With { "/srv/unsigned/Packages"; }; }; };',
            'Binary::apt-get::APT::Sources::With { x "/srv/unsigned/Packages"; };',
            'Dir::Etc::sourceparts "/srv/unsigned/parts";',
            'Binary::apt-get::Dir::Etc::SourceParts "/srv/unsigned/parts";',
            'Dir::Etc::sourcelist "/srv/unsigned/parts/x.list";',
        ]
    )
)
"""The sources beside these name the repository without any option."""
INCLUDED = _BOTH

REPLACED = [
    'Dir::Bin::methods::gpgv "/srv/good";',
    'Dir::Bin::methods::sqv "/srv/good";',
    'Dir::Bin::methods "/srv";',
    'Dir::Bin::apt-key "/srv/good";',
    'Dir::Bin::gpgv "/srv/good";',
    'Dir::Bin::dpkg "/srv/good";',
    'Dir::Bin::solvers:: "/srv";',
    'Dir::Bin::xz "/srv/good";',
    'Dir::Etc::trusted "/srv/keys.gpg";',
    'Dir::Etc::trustedparts "/srv/keys";',
    'Dir::State::lists "/srv/lists";',
    'Dir::Cache::archives "/srv/archives";',
    'Dir "/srv";',
    'RootDir "/srv";',
    'APT::Key::gpgvcommand "/srv/good";',
    'APT::Key::Assert-Pubkey-Algo ">=rsa512";',
    'APT::Solver "evil";',
    'APT::Planner "evil";',
    'APT::Sandbox::User "root";',
    'APT::Hashes::SHA1::Untrusted "no";',
    'APT::Compressor::zz::Binary "/srv/good";',
    'Acquire::http::Proxy-Auto-Detect "/srv/good";',
    'Acquire::https::Verify-Peer "false";',
    'Acquire::cdrom { "/media/cdrom/"::Mount "touch /srv/ran"; };',
    'Acquire::Max-ValidTime "999999999";',
    'Debug::pkgDPkgPM "true";',
    'DPkg::Path "/srv";',
    'DPkg::Chroot-Directory "/srv";',
    'Binary::apt-get::Dir::Bin::dpkg "/srv/good";',
    'binary { apt-cache { dir::state::lists "/srv"; }; };',
]
"""Options by which another program would run, or others would be believed."""

HARMLESS = [
    'APT::Periodic::Update-Package-Lists "1";',
    'Unattended-Upgrade::Automatic-Reboot "false";',
    'APT::Authentication::TrustCDROM "true";',
    'APT::Get::Assume-Yes "true";',
    'APT::Get::AllowUnauthenticated "no";',
    'Acquire::AllowInsecureRepositories "0";',
    'Acquire::AllowReleaseInfoChange "true";',
    'Acquire::http::Proxy "http://proxy:3142/";',
    'Acquire::PDiffs "0";',
    'Acquire::cdrom { mount "/media/cdrom"; }; Dir::Media::MountPoint "/media/cdrom";',
    'APT::Default-Release "test";',
    'Binary::apt::APT::Get::AllowUnauthenticated "1";',
    'DPkg::Pre-Install-Pkgs { "/usr/bin/apt-listchanges --apt || test $? -lt 10"; };',
    'DPkg::Tools::Options::/usr/bin/apt-listchanges::Version "2";',
    'DPkg::Post-Invoke { "/usr/bin/test -e /x && touch /srv/hooked || true"; };',
    'DPkg::Options { "--force-confnew"; };',
    'APT::Sources::With "";',
]
"""Options that a device may well have. What they would run isn't run."""
