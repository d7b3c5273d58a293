//! Maps errors of iptables-restore and iptables-save, and of their files, to an exit code and a hint.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::{missing_modules, sandbox};
use crate::exit::Exit;
use crate::kernel::capabilities::{self, Capabilities};
use crate::kernel::process::Output;
use crate::kernel::restore::{LOCK_WAIT_SECONDS, ToolError};
use crate::kernel::sandbox::is_sandbox;
use crate::kernel::{idmap, limits, modules};
use crate::model::{Family, Tools, Variant};
use crate::parse;
use crate::plan::Restore;
use crate::report::Failure;
use crate::text::path_shown;

/// A file that an option names cannot be written.
pub(super) fn cannot_write(option: &str, path: &Path, error: &io::Error) -> Failure {
    let why = match error.raw_os_error() {
        Some(libc::ELOOP) => "it is a symbolic link".to_owned(),
        Some(libc::ENXIO) => "it is a pipe or socket without a reader".to_owned(),
        _ => error.to_string(),
    };
    let path = path_shown(path);
    let hint = limits::hint(error)
        .unwrap_or("name a file in a directory that exists and is writable, or omit the option");
    Failure::new(Exit::CannotCreate, format!("cannot write {path} ({option}): {why}")).hint(hint)
}

/// No file can be made for the rules that the tool reads.
pub(super) fn no_temporary_file(error: &io::Error) -> Failure {
    let failure = Failure::new(Exit::CannotCreate, format!("cannot create a rules file: {error}"));
    match limits::hint(error) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// The failure of a restore tool, with the line of the rules file that it names.
pub(super) fn of_restore(error: &ToolError, step: &Restore, text: &str) -> Failure {
    of(error, step.variant, step.family(), text)
}

/// What a save tool printed, unless it is cut off: an out-of-memory kill of the tool behind a wrapper leaves
/// no other trace.
pub(super) fn whole(saved: String, tools: &Tools) -> Result<String, Failure> {
    let Some(table) = parse::cut_off(&saved) else { return Ok(saved) };
    let what = format!("`{}` printed an incomplete list: `{table}` has no COMMIT", path_shown(&tools.save));
    let hint =
        "check whether it was killed (memory limit of the container, dmesg on the node), then run again";
    Err(Failure::new(Exit::Refused, what).hint(hint))
}

/// The failure of a save tool.
pub(super) fn of_save(error: &ToolError, variant: Variant, family: Family) -> Failure {
    of(error, variant, family, "")
}

fn of(error: &ToolError, variant: Variant, family: Family, text: &str) -> Failure {
    match error {
        ToolError::CannotRun { line, error } => cannot_run(line, error),
        ToolError::TimedOut { line, timeout } => hung(line, variant, *timeout),
        ToolError::Failed { line, output } => refusal(line, variant, family, output, text),
        ToolError::Tables(error) => {
            Failure::new(Exit::Refused, format!("cannot read the {family} tables: {error}"))
        }
    }
}

fn hung(line: &str, variant: Variant, timeout: Duration) -> Failure {
    let what = format!("`{line}` did not end within {} s and was killed", timeout.as_secs());
    Failure::new(Exit::Busy, what).hint(match variant {
        Variant::Legacy => {
            "it may wait for /run/xtables.lock: find the process that holds it (`fuser -v /run/xtables.lock`), \
             delete the file if it is not a regular one, then run again"
        }
        Variant::Nft => "see what it waits for (/proc/PID/stack, dmesg on the node), then run again",
    })
}

fn cannot_run(line: &str, error: &io::Error) -> Failure {
    let hint = limits::hint(error).unwrap_or("install the tool for this architecture, with its libraries");
    Failure::new(Exit::Unavailable, format!("cannot run `{line}`: {error}")).hint(hint)
}

fn refusal(line: &str, variant: Variant, family: Family, output: &Output, text: &str) -> Failure {
    let ended = match output.code {
        Some(code) => format!("exit code {code}"),
        None => "ended by a signal".to_owned(),
    };
    let stderr = &output.stderr;
    let offending = offending_line(stderr, text);
    let mut failure =
        Failure::new(Exit::Refused, format!("`{line}` failed ({ended})")).detail(stderr.as_str());
    if let Some(offending) = offending {
        failure = failure.detail(format!("the line is: {offending}"));
    }
    let missing_library = missing_library(stderr);
    if missing_library.is_none() && !text.is_empty() && is_sandbox() {
        return sandbox::refused(failure, text);
    }
    let known = missing_library
        .or_else(|| not_modules((variant, family), stderr, offending.unwrap_or_default(), text));
    if let Some((exit, hint)) = known {
        return Failure { exit, ..failure.hint(hint) };
    }
    match missing_modules::of_restore(variant, family, stderr, text, &modules::is_loaded) {
        missing if missing.is_empty() => {
            failure.hint("run again with --log_output_level=debug; the kernel's log (dmesg) may say more")
        }
        missing => failure.hint(missing_modules::hint(&missing)).missing(missing),
    }
}

/// The line of the rules file whose number the tool names first.
fn offending_line<'a>(stderr: &str, text: &'a str) -> Option<&'a str> {
    text.lines().nth(missing_modules::line_number(stderr)?.checked_sub(1)?)
}

/// A tool that cannot even start: the loader's complaint, glibc's or musl's, names the shared library.
fn missing_library(stderr: &str) -> Option<(Exit, String)> {
    let (_, named) = ["error while loading shared libraries: ", "Error loading shared library "]
        .into_iter()
        .find_map(|complaint| stderr.split_once(complaint))?;
    let library = named.split(':').next()?.trim();
    let hint = format!(
        "{library} is missing in the image, or is not for this machine: install the package it is in, next to the \
         package iptables"
    );
    Some((Exit::Unavailable, hint))
}

/// The cause, unless it is a missing kernel module. The texts are those of iptables 1.6 to 1.8.11, both
/// variants.
fn not_modules(
    (variant, family): (Variant, Family),
    stderr: &str,
    line: &str,
    text: &str,
) -> Option<(Exit, String)> {
    let prints = |text: &str| stderr.contains(text);
    if prints("xtables lock") && prints("holding") {
        return Some((
            Exit::Busy,
            format!(
                "another program held /run/xtables.lock for {LOCK_WAIT_SECONDS} s; find it (`fuser /run/xtables.lock`) or run again"
            ),
        ));
    }
    if prints("lock file") || prints("xtables.lock") {
        return Some((
            Exit::CannotCreate,
            "the lock file cannot be used: mount a writable /run, or use iptables 1.8.6 or later, which takes another one".to_owned(),
        ));
    }
    // The tool does not report that it could not open its raw socket.
    let no_table = prints("unable to initialize table") || prints("can't initialize");
    let no_socket =
        || variant == Variant::Legacy && no_table && Capabilities::current().is_ok_and(|has| !has.net_raw);
    if prints("Permission denied")
        || prints("Operation not permitted")
        || prints("you must be root")
        || no_socket()
    {
        return Some((Exit::NoPermission, permission_hint(variant)));
    }
    if prints("Couldn't load") || prints("unknown option") {
        return Some((
            Exit::Refused,
            "an extension of iptables is missing in the image: install the whole package, with its xtables folder".to_owned(),
        ));
    }
    if prints("Message too long") {
        return Some((
            Exit::Refused,
            "in a user namespace iptables-nft sends at most net.core.wmem_max bytes at once, and a change is one message: \
             raise it on the node, give fewer ports and ranges, use --backend iptables-legacy, or, before the pod has \
             traffic, run `istio-iptables cleanup` first: fresh rules are written in parts"
                .to_owned(),
        ));
    }
    if let Some(chain) = unsuitable_chain(family, stderr, text) {
        return Some((Exit::Refused, unsuitable_hint(&chain)));
    }
    // iptables-legacy names the commit only.
    let owners = if line == "COMMIT" && prints("failed") { text } else { line };
    unmapped_owner(owners).map(|hint| (Exit::Refused, hint))
}

/// What to do about such a chain: family, table and name.
pub(super) fn unsuitable_hint(chain: &str) -> String {
    format!(
        "a chain of that name has another type, hook or priority than iptables-nft needs (`nft list chain {chain}`): have \
         the program that made it use another table, delete it (`nft delete chain {chain}`), or use --backend nftables"
    )
}

/// The foreign chain of nftables that has the name of one of iptables and is not like it: the kernel refuses
/// to make that.
fn unsuitable_chain(family: Family, stderr: &str, text: &str) -> Option<String> {
    let refused = |why: &&str| stderr.contains(&format!("CHAIN_ADD failed ({why}): chain "));
    ["File exists", "Operation not supported"].into_iter().find(refused)?;
    let name = stderr.split_once("): chain ")?.1.split_whitespace().next()?;
    let number = missing_modules::line_number(stderr)?;
    let table = text.lines().take(number).filter_map(|line| line.strip_prefix('*')).last()?;
    let family = match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    };
    Some(format!("{family} {table} {name}"))
}

/// What rules call users and groups, the file that maps them, and the option that names the proxy's.
pub(super) const USERS: [&str; 3] = ["--uid-owner", "uid", "--proxy-uid"];
pub(super) const GROUPS: [&str; 3] = ["--gid-owner", "gid", "--proxy-gid"];

/// The kernel refuses rules with a uid or gid that the user namespace does not map.
fn unmapped_owner(rules: &str) -> Option<String> {
    [USERS, GROUPS].into_iter().find_map(|of| {
        let [word, ..] = of;
        let owners =
            rules.split(word).skip(1).filter_map(|rest| rest.split_whitespace().next()?.parse().ok());
        unmapped(of, owners)
    })
}

/// What to do about the first of these ids that the user namespace does not map.
pub(super) fn unmapped(
    [_, kind, option]: [&str; 3],
    mut owners: impl Iterator<Item = u32>,
) -> Option<String> {
    let mapped = idmap::mapped(kind)?;
    let unmapped = owners.find(|owner| !mapped.iter().any(|ids| ids.contains(owner)))?;
    Some(format!(
        "{kind} {unmapped} is not mapped in this user namespace (/proc/self/{kind}_map): map it, or choose another one with {option}"
    ))
}

fn permission_hint(variant: Variant) -> String {
    let more = if variant == Variant::Legacy { "; iptables-legacy also needs NET_RAW" } else { "" };
    format!("{}{more}", capabilities::GRANT)
}
