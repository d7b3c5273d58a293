//! The pod's loopback interface, which the runtime sets up at the same time.
//!
//! containerd calls the plugin `loopback` concurrently with the network's list, not before it. That plugin
//! sets `lo` up and then refuses addresses other than loopback ones, such as `::6`, which captured pods need
//! there: it must finish first.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::process::parent_id;
use std::path::Path;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use istio_iptables::kernel::rtnetlink::loopback;

/// The time to wait at most, whatever the deadline.
pub const LONGEST: Duration = Duration::from_secs(10);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// So many looks in a row find nothing under way. The kernel's list of children may lack one while others
/// end.
const QUIET_LOOKS: u32 = 2;

/// Of what the kernel says of a process, in bytes. The variables of a container's processes are a part of
/// that.
const LARGEST: usize = 64 << 10;

/// Waits until `lo` is up in this thread's network namespace and the runtime runs no plugin for it, at most
/// so long: not every runtime sets it up.
pub fn wait_until_set_up(container: &str, limit: Duration) {
    let begin = Instant::now();
    let mut quiet = 0;
    while quiet < QUIET_LOOKS {
        // An interface that cannot be looked at is not waited for.
        if loopback::is_up().unwrap_or(true) && !is_being_set_up(container).unwrap_or(false) {
            quiet += 1;
            continue;
        }
        quiet = 0;
        if begin.elapsed() >= limit {
            log::warn!(waited_ms = limit.as_millis(); "lo is still down, or being set up: not waited for any longer");
            return;
        }
        thread::sleep(PAUSE);
    }
}

/// Whether a process that the runtime has started sets up `lo` for this container, or may do so.
fn is_being_set_up(container: &str) -> io::Result<bool> {
    is_set_up_by(&parent_id().to_string(), container)
}

fn is_set_up_by(parent: &str, container: &str) -> io::Result<bool> {
    let wanted = [format!("CNI_CONTAINERID={container}"), "CNI_IFNAME=lo".to_owned()];
    // Called for `lo`, this process has these variables as well.
    let own = process::id().to_string();
    for thread in fs::read_dir(format!("/proc/{parent}/task"))?.flatten() {
        // A thread may end meanwhile. Where the kernel does not list children, there are none.
        let children = list(&thread.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter(|child| *child != own) {
            // A process that has ended, or that may not be looked at.
            let Ok(environment) = read(&format!("/proc/{child}/environ")) else { continue };
            let has = |wanted: &String| environment.split('\0').any(|variable| variable == wanted);
            if wanted.iter().all(has) || environment.is_empty() && may_have_variables(child) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether a process that seems to have no variables may have some: while it starts a program in its place,
/// they cannot be read.
fn may_have_variables(process: &str) -> bool {
    let stat = read(&format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything: the state, then as words 24, 48 and 49 where the code begins,
    // and where the variables begin and end. The kernel sets that of the code last.
    let mut words = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let state = words.next();
    let (code, begin, end) = (words.nth(22), words.nth(23), words.next());
    !matches!(state, None | Some("Z" | "X")) && (code == Some("0") || begin != end)
}

/// A list that the kernel keeps whole while it is read in pieces, of any length.
#[allow(clippy::disallowed_methods, reason = "what runs beside this process is read here alone")]
fn list(path: &Path) -> io::Result<String> {
    fs::read_to_string(path)
}

/// In one piece, as far as it has no more than [`LARGEST`] bytes: when a process starts another program
/// between two reads, the second finds the end.
#[allow(clippy::disallowed_methods, reason = "what runs beside this process is read here alone")]
fn read(path: &str) -> io::Result<String> {
    let mut file = File::open(path)?;
    let (mut bytes, mut length) = (vec![0; LARGEST], 0);
    loop {
        match file.read(bytes.get_mut(length..).unwrap_or_default())? {
            0 => return Ok(String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned()),
            more => length += more,
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::process::{Child, Command, Stdio, id};

    use super::*;

    /// Ends with the test, which may fail.
    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            // It may have ended.
            let _ = self.0.kill().and_then(|()| self.0.wait());
        }
    }

    fn start(words: &[&str], variables: &[(&str, &str)]) -> Running {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env_clear().envs(variables.iter().copied());
        Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn is_found(container: &str) -> bool {
        is_set_up_by(&id().to_string(), container).unwrap()
    }

    /// As a script in the place of the plugin does, which starts the plugin at its end.
    #[test]
    fn process_that_starts_other_programs_in_its_place_is_always_found() {
        let script =
            r#"[ "$LEFT" -gt 0 ] || exec /bin/sleep 1000; LEFT=$((LEFT - 1)) exec /bin/sh -c "$SCRIPT""#;
        let variables =
            [("CNI_CONTAINERID", "script"), ("CNI_IFNAME", "lo"), ("LEFT", "500"), ("SCRIPT", script)];
        let child = start(&["/bin/sh", "-c", script], &variables);
        let name = format!("/proc/{}/comm", child.0.id());
        // Until then it has this process's variables.
        while !is_found("script") {}
        let mut looks = 0;
        while read(&name).unwrap() != "sleep\n" {
            assert!(is_found("script"), "look {looks}");
            looks += 1;
        }
        assert!(looks > 50, "{looks}");
    }

    #[test]
    fn processes_without_these_variables_are_not_waited_for() {
        let variables = [("CNI_CONTAINERID", "other"), ("CNI_IFNAME", "eth0")];
        let sleep = ["/bin/sleep", "1000"];
        let _running = [start(&sleep, &variables), start(&sleep, &[]), start(&["/bin/true"], &[])];
        // At the beginning, and at its end, a process seems to have no variables.
        let until = Instant::now() + Duration::from_secs(60);
        while is_found("other") {
            assert!(Instant::now() < until);
        }
    }
}
