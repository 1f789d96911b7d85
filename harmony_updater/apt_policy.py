"""Judge by apt's own words whether it would take what nobody signed.

apt reads its options and its sources itself, and is asked what it made of them: nothing here reads
their grammar. Pure. What isn't understood is an objection.
"""

import re
from collections import Counter
from collections.abc import Sequence

# What the device may configure: it changes neither who is believed nor what runs. Any other option
# is as apt.conf beside this file and Debian have it, or is an objection.
_ALLOWED = r"""
apt::(periodic|archives|neverautoremove|versionedkernelpackages|autoremove)(::.*)?
apt::(never-markauto-sections|move-autobit-sections|color|machine-id)(::.*)?
apt::(install-(recommends|suggests)|default-release|architectures?|cache-(start|grow|limit))(::.*)?
apt::keep-(fetched-files|downloaded-packages)
apt::get::(assume-yes|automaticremove|autoremove|hideautoremove|show-upgraded|show-versions)(::.*)?
apt::get::(upgrade-allow-new|(never|always)-include-phased-updates|phase-policy|list-cleanup)
apt::list-cleanup
acquire::(retries|queue-mode|queue-host-limit|languages|pdiffs|gzipindexes|by-hash)(::.*)?
acquire::cdrom::(mount|autodetect)
acquire::(forceipv4|forceipv6|forceip|allowreleaseinfochange|max-default-age)(::.*)?
acquire::compressiontypes::order(::.*)?
acquire::(http|https|ftp)(::[^:]+)?::(proxy|timeout|connectiontimeout|pipeline-depth|dl-limit)
acquire::(http|https|ftp)(::[^:]+)?::(no-cache|max-age|no-store|user-agent|allowredirect|passive)
acquire::(http|https|ftp)::proxy::.*
acquire::https(::[^:]+)?::(cainfo|capath|sslcert|sslkey|sslkeytype|crlfile|issuercert)
acquire::indextargets::deb(-src)?::(dep-11|contents|cnf)[a-z0-9-]*(::.*)?
dir::etc::(main|parts|apt-listchanges-(main|parts))
dir::media::mountpoint
dir::cache::(src)?pkgcache
binary
binary::(?!apt-(get|cache|config)(::|$)).*
binary::apt-get::(apt::get::(allowunauthenticated|force-yes)|acquire::allow(\w+)repositories)
(unattended-upgrade|aptitude|synaptic|apt-listbugs|apt-listchanges|packagekit|apticron)(::.*)?
(rpm|dselect)(::.*)?
quiet(::.*)?
"""
_HARMLESS = re.compile("|".join(_ALLOWED.split()))
_ENTRY = re.compile(r'(\S+?)(?:::)? "(.*)";')

_SWITCHES = (
    "APT::Get::AllowUnauthenticated",
    "APT::Get::Force-Yes",
    "Acquire::AllowInsecureRepositories",
    "Acquire::AllowWeakRepositories",
    "Acquire::AllowDowngradeToInsecureRepositories",
)
SWITCHES = (*_SWITCHES, *(f"Binary::apt-get::{key}" for key in _SWITCHES))
_FLAGS = "$(ALLOW_INSECURE) $(ALLOW_WEAK) $(ALLOW_DOWNGRADE_TO_INSECURE)"
_UNBELIEVED = f"no {_FLAGS} "
BELIEVED_FORMAT = f"$(TRUSTED) {_FLAGS} $(FILENAME) $(SOURCESENTRY)"
VERIFIED_FORMAT = "$(TRUSTED) $(REPO_URI) $(DESCRIPTION)"
_VERIFIED = re.compile(r"yes (\S+) (.+)")
_PACKAGE_FILE = re.compile(r" *-?\d+ (.*)")
_INSTALLED = "/var/lib/dpkg/status"


def switched_off(said: Sequence[str]) -> list[str]:
    """List the switches of authentication that aren't false.

    `said` is of `apt-config shell`, which leaves out what isn't set.
    """
    off = {f"{key}='false'" for key in SWITCHES}
    return [line for line in said if line not in off]


def unsafe_options(defaults: Sequence[str], actual: Sequence[str]) -> list[str]:
    """List the options in which two dumps of apt's configuration differ, but for harmless ones."""
    found, known = _entries(actual), _entries(defaults)
    changed = [*(found - known), *(f"{entry} is missing" for entry in known - found)]
    return sorted(entry for entry in changed if not _HARMLESS.fullmatch(entry.split(" ")[0]))


def _entries(dump: Sequence[str]) -> Counter[str]:
    """Read the lines as `key "value"`.

    The case of letters doesn't count. A key without a value is as good as no key.
    """
    entries: Counter[str] = Counter()
    for line in dump:
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            entries[f"{line!r} isn't an option"] += 1
        elif entry[2]:
            entries[f'{entry[1].lower()} "{entry[2]}"'] += 1
    return entries


def believed(indexes: Sequence[str], said: Sequence[str]) -> list[str]:
    """List the sources that apt trusts though none of its indexes has a signature beside it."""
    found = []
    for path, line in zip(indexes, said, strict=False):
        flags, name, where = line.partition(f"/{path.rpartition('/')[2]} ")
        if not (name and flags.startswith(_UNBELIEVED)):
            found.append(where or line)
    if len(indexes) != len(said):
        found.append(f"of {len(indexes)} indexes, apt judged {len(said)}")
    return list(dict.fromkeys(found))


def unverified(said: Sequence[str], policy: Sequence[str]) -> list[str]:
    """List the indexes that apt chooses packages from and hasn't verified."""
    known = {_INSTALLED, *(description for _, description in _verified(said))}
    chosen = [found[1] for line in policy if (found := _PACKAGE_FILE.fullmatch(line))]
    untrusted = [line for line in said if not _VERIFIED.fullmatch(line)]
    return untrusted + [index for index in chosen if index not in known]


def astray(said: Sequence[str], archives: Sequence[str]) -> list[str]:
    """List the archives that aren't below any verified repository."""
    places = tuple(place for place, _ in _verified(said))
    return [archive for archive in archives if not archive.startswith(places)]


def _verified(said: Sequence[str]) -> list[tuple[str, str]]:
    """Find the repository and the description of each index that apt has verified."""
    found = map(_VERIFIED.fullmatch, said)
    return [(index[1], index[2]) for index in found if index is not None]
