"""The virtual machine's files: an initramfs (cpio, format newc) with the tools, the programs and the kernel's modules."""

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

# Beside these only the libraries that they load.
PROGRAMS = re.compile(
    r"bin/(busybox|ip|ss|bash|realpath|python3.*)|sbin/(ip|iptables-.*|ip6tables-.*|xtables-(nft|legacy)-multi|nft|conntrack)"
    r"|bin/(setpriv|unshare|nsenter)|etc/(protocols|services)|lib/[^/]*/xtables/lib(xt|ipt|ip6t)_.*\.so"
    r"|lib/python3[^/]*/.*\.py"
)


class Archive:
    """A cpio archive in memory. Everything in it belongs to root, whichever user makes it."""

    def __init__(self):
        self.parts, self.made, self.number = [], set(), 0

    def add(self, path, mode, data=b"", device=(0, 0)):
        path = path.lstrip("/")
        parent = os.path.dirname(path)
        if parent and parent not in self.made:
            self.add(parent, stat.S_IFDIR | 0o755)
        if path in self.made:
            return
        self.made.add(path)
        self.number += 1
        name = path.encode() + b"\0"
        fields = [self.number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name), 0]
        header = b"070701" + b"".join(b"%08x" % field for field in fields)
        self.parts += [padded(header + name), padded(data)]

    def add_file(self, path, source, mode=0o755):
        self.add(path, stat.S_IFREG | mode, Path(source).read_bytes())

    def add_link(self, path, target):
        self.add(path, stat.S_IFLNK | 0o777, target.encode())

    def add_tree(self, path, source, select=lambda name: True):
        for file in sorted(Path(source).rglob("*")):
            name = str(file.relative_to(source))
            if not select(name):
                continue
            if file.is_symlink():
                self.add_link(f"{path}/{name}", os.readlink(file))
            elif file.is_file():
                self.add_file(f"{path}/{name}", file, file.stat().st_mode & 0o777)

    def write(self, file):
        self.add("TRAILER!!!", 0)
        Path(file).write_bytes(b"".join(self.parts))


def padded(data):
    return data + b"\0" * (-len(data) % 4)


def needed(file):
    """The libraries that a program or library names."""
    shown = subprocess.run(["readelf", "-dW", str(file)], capture_output=True, text=True, check=False).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", shown)


def add_tools(archive, tools):
    """The programs, and every library that they load."""
    is_program = re.compile(rf"(usr/)?({PROGRAMS.pattern})")
    chosen = [file for file in sorted(tools.rglob("*")) if is_program.fullmatch(str(file.relative_to(tools)))]
    libraries = {file.name: file for file in tools.rglob("*.so*")}
    wanted, have = {name for file in chosen if file.suffix != ".py" for name in needed(file)}, set()
    while wanted - have:
        name = (wanted - have).pop()
        have.add(name)
        if name in libraries:
            wanted.update(needed(libraries[name]))
    for file in tools.rglob("ld-linux*.so.*"): # the loader, under the path that programs name
        have.add(file.name)
    # A library's name is a link to its file.
    have.update(os.readlink(libraries[name]) for name in sorted(have & set(libraries)) if libraries[name].is_symlink())
    archive.add_tree("", tools, lambda name: is_program.fullmatch(name) or os.path.basename(name) in have)
    archive.add_file("sbin/modprobe", Path(__file__).parent / "modprobe")


def add_modules(archive, kernel, without, work):
    """The kernel's modules but for those in `without` and all that depend on them."""
    release = (kernel / "version").read_text().split()[0]
    root = work / "modules"
    shutil.rmtree(root, ignore_errors=True)
    here = root / "lib/modules" / release
    shutil.copytree(kernel / "modules", here)
    depmod(root, release)
    hidden = re.compile("|".join(without) or "$.")
    for line in (here / "modules.dep").read_text().splitlines():
        module, _, depends = line.partition(":")
        names = [Path(path).stem.replace("-", "_") for path in [module, *depends.split()]]
        if any(hidden.fullmatch(name) for name in names):
            (here / module).unlink()
    depmod(root, release)
    archive.add_tree("lib/modules", root / "lib/modules")


def depmod(root, release):
    subprocess.run(["depmod", "-b", str(root), release], stderr=subprocess.DEVNULL, check=True)
