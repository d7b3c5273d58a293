"""Kernels and tools from Debian and Ubuntu packages: resolved, downloaded, unpacked. Nothing is installed."""

import io
import lzma
import os
import re
import shutil
import subprocess
import tarfile
import time
from pathlib import Path

DEBIAN = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
DEBIAN_SECURITY = os.environ.get("DEBIAN_SECURITY_MIRROR", "http://deb.debian.org/debian-security")
UBUNTU = os.environ.get("UBUNTU_MIRROR", "http://archive.ubuntu.com/ubuntu")
DEBIAN_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
UBUNTU_KEYS = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"

# Which folders of which archives a release consists of.
SOURCES = {
    "sid": [(DEBIAN_KEYS, DEBIAN, "sid")],
    "trixie": [(DEBIAN_KEYS, DEBIAN, "trixie"), (DEBIAN_KEYS, DEBIAN_SECURITY, "trixie-security")],
    "bookworm": [(DEBIAN_KEYS, DEBIAN, "bookworm"), (DEBIAN_KEYS, DEBIAN_SECURITY, "bookworm-security")],
    "bullseye": [(DEBIAN_KEYS, DEBIAN, "bullseye"), (DEBIAN_KEYS, DEBIAN_SECURITY, "bullseye-security")],
    "focal": [(UBUNTU_KEYS, UBUNTU, "focal"), (UBUNTU_KEYS, UBUNTU, "focal-updates")],
    "bionic": [(UBUNTU_KEYS, UBUNTU, "bionic"), (UBUNTU_KEYS, UBUNTU, "bionic-updates")],
}

# Package lists are fetched again after a day.
MAX_AGE = 24 * 3600

# What of a kernel's modules the cases can need: packet filter, connection tracking, veth pairs, socket diagnosis.
MODULES = re.compile(
    r"kernel/(net/(netfilter|ipv4|ipv6|netlink|unix)/.*|drivers/net/(veth|dummy)\.ko|lib/(libcrc32c|crc).*"
    r"|crypto/crc32c.*|arch/[^/]*/(crypto|lib)/crc32.*)"
)


class Unavailable(Exception):
    """A package that cannot be had: with the reason."""


def run(command, **options):
    ended = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if ended.returncode != 0:
        last = (ended.stderr or ended.stdout).strip().splitlines()[-1:] or ["no message"]
        raise Unavailable(f"{' '.join(command[:2])}: {last[0]}")
    return ended.stdout


class Release:
    """A release of a distribution for one architecture, with package lists of its own."""

    def __init__(self, cache, arch, name):
        self.folder = cache / arch / name
        self.cache, self.arch, self.name = cache, arch, name

    def _apt(self, tool, *words):
        state = self.folder / "apt"
        options = {
            "Dir::State": state, "Dir::State::status": "/dev/null", "Dir::Cache": state, "Dir::Etc::sourceparts": "-",
            "Dir::Etc::sourcelist": state / "sources.list", "APT::Architecture": self.arch, "APT::Architectures": self.arch,
            "APT::Sandbox::User": "", "Acquire::Languages": "none", "Acquire::Retries": 3, "Acquire::http::Timeout": 60,
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false", "Debug::NoLocking": 1,
        }
        given = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        return run([tool, "-c", str(state / "apt.conf"), *given, *words], cwd=self.folder)

    def update(self):
        """Fetches the package lists, unless today's are there."""
        state = self.folder / "apt"
        stamp = state / "updated"
        if stamp.exists() and time.time() - stamp.stat().st_mtime < MAX_AGE:
            return
        for folder in ["lists/partial", "archives/partial"]:
            (state / folder).mkdir(parents=True, exist_ok=True)
        lines = []
        for keys, mirror, suite in SOURCES[self.name]:
            if not Path(keys).exists() and keys == UBUNTU_KEYS: # Debian has them too
                keys = Release(self.cache, self.arch, "trixie").file("ubuntu-keyring", keys)
            if not Path(keys).exists():
                raise Unavailable(f"{keys} is missing: install the package it is in")
            lines.append(f"deb [signed-by={keys}] {mirror} {suite} main\n")
        (state / "sources.list").write_text("".join(lines))
        # The machine's own hooks are for its own package lists.
        (state / "apt.conf").write_text("#clear APT::Update;\n#clear DPkg::Post-Invoke;\n")
        self._apt("apt-get", "-qq", "-o", "APT::Update::Error-Mode=any", "update")
        stamp.touch()

    def _depends(self, package):
        """The newest version of a package, and the packages that it depends on."""
        shown = self._apt("apt-cache", "--no-all-versions", "show", package)
        fields = dict(line.split(": ", 1) for line in shown.splitlines() if re.match(r"\S+: ", line))
        return fields["Version"], re.findall(r"[a-z0-9][a-z0-9.+-]+(?=[ ,|(:]|$)", fields.get("Depends", ""))

    def kernel(self, metapackage):
        """The kernel that a metapackage depends on: a folder with `vmlinuz`, `modules/` and `version`."""
        self.update()
        version, depends = self._depends(metapackage)
        image = next((name for name in depends if re.match(r"linux-image-.*\d", name)), None)
        if image is None:
            raise Unavailable(f"{metapackage} of {self.name} depends on no kernel: {depends}")
        release = image.removeprefix("linux-image-")
        parts = {f"linux-{part}-{release}" for part in ("modules", "binary")}
        packages = [image, *sorted(parts.intersection(self._depends(image)[1]))]
        folder = self.folder / metapackage
        done = folder / "version"
        if not done.exists() or done.read_text() != f"{release} {version}":
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for package in packages:
                self._unpack(package, lambda tar: unpack_kernel(tar, folder))
            if not (folder / "vmlinuz").exists() or not any(folder.glob("modules/kernel/net/netfilter/x_tables.ko")):
                raise Unavailable(f"no kernel with modules in {packages}")
            done.write_text(f"{release} {version}")
        return folder

    def tools(self, packages):
        """These packages and all they depend on, unpacked into one folder."""
        self.update()
        folder = self.folder / "tools"
        wanted = self._apt("apt-get", "-qq", "--print-uris", "--no-install-recommends", "install", *packages)
        done = self.folder / "tools.list"
        if not done.exists() or done.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            self._apt("apt-get", "-qq", "-y", "--no-install-recommends", "--download-only", "install", *packages)
            for package in sorted((self.folder / "apt/archives").glob("*.deb")):
                run(["dpkg-deb", "--extract", str(package), str(folder)])
                package.unlink()
            done.write_text(wanted)
        return folder

    def file(self, package, path):
        """One file of a package."""
        self.update()
        target = self.folder / Path(path).name
        self._unpack(package, lambda tar: target.write_bytes(tar.extractfile(f".{path}").read()))
        return target

    def _unpack(self, package, use):
        self._apt("apt-get", "-qq", "download", package)
        for deb in self.folder.glob(f"{package}_*.deb"):
            data = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE, check=True).stdout
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                use(tar)
            deb.unlink()


def unpack_kernel(tar, folder):
    """Takes the kernel and the modules that may be needed out of a package; modules uncompressed."""
    for member in tar:
        path = re.search(r"lib/modules/[^/]+/(.*)", member.name)
        name = path.group(1) if path else ""
        if not member.isfile():
            continue
        data = tar.extractfile(member).read
        if name == "vmlinuz" or re.search(r"boot/vmlinuz-", member.name):
            (folder / "vmlinuz").write_bytes(data())
        elif MODULES.match(name) or name in ("modules.builtin", "modules.order"):
            target = folder / "modules" / re.sub(r"\.(xz|zst)$", "", name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(plain(name, data()))


def plain(name, data):
    if name.endswith(".xz"):
        return lzma.decompress(data)
    if name.endswith(".zst"):
        return subprocess.run(["zstd", "-dc"], input=data, stdout=subprocess.PIPE, check=True).stdout
    return data
