//! BPF programs that may drop packets or give them another destination or socket, in words.

use crate::explain::{BpfProgram, Seen};
use crate::kernel::bpf::{self, NetfilterProgram};
use crate::kernel::processes::Process;
use crate::kernel::{cgroup_programs, recording, sandbox};
use crate::model::Family;
use crate::text::one_line;

/// The BPF programs of the network namespace. None if this process may not list them.
pub(super) fn of_network_namespace() -> Vec<BpfProgram> {
    let lookup = recording::optional(bpf::at_socket_lookup).unwrap_or_default().into_iter().map(|number| {
        let words = format!(
            "a BPF program (sk_lookup, number {number}) may give what arrives to another socket than the listener's, or to none"
        );
        BpfProgram { family: None, packets: Seen::Received, words }
    });
    let netfilter = recording::optional(bpf::at_netfilter).unwrap_or_default().into_iter();
    lookup.chain(netfilter.filter_map(of_netfilter)).collect()
}

/// `None` if it sees no packets of pods.
fn of_netfilter(program: NetfilterProgram) -> Option<BpfProgram> {
    const HOOKS: [&str; 5] = ["PREROUTING", "INPUT", "", "OUTPUT", "POSTROUTING"];
    let NetfilterProgram { number, family, hook, priority } = program;
    let family = [(2, Family::V4), (10, Family::V6)].into_iter().find(|(number, _)| *number == family)?.1;
    let hook = HOOKS.get(hook).filter(|name| !name.is_empty())?;
    let words = format!(
        "a BPF program (netfilter, number {number}) at {family} {hook}, priority {priority}, may drop packets: its network namespace, this \
         one or another, is not known"
    );
    Some(BpfProgram { family: Some(family), packets: Seen::All, words })
}

/// The BPF programs at the sockets of these processes, if this process's own sockets do not show what they
/// do.
pub(super) fn at_sockets(processes: &[Process], unread: &mut Vec<String>) -> Vec<BpfProgram> {
    // It has no programs of its own.
    if sandbox::is_sandbox() {
        return Vec::new();
    }
    let pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
    let found = cgroup_programs::of_processes(&pids).unwrap_or_else(|error| {
        unread.push(format!("BPF programs at the sockets of other cgroups cannot be listed: {error}"));
        Vec::new()
    });
    let name = |pid: u32| {
        let process = processes.iter().find(|process| process.pid == pid);
        process.map_or_else(String::new, |process| one_line(&process.name).into_owned())
    };
    { found }.into_iter().map(|(pid, hooks)| of_process((pid, &name(pid)), &hooks)).collect()
}

fn of_process((pid, name): (u32, &str), hooks: &[String]) -> BpfProgram {
    let program = format!("a BPF program ({}) at the sockets of process {pid} ({name})", hooks.join(", "));
    if hooks.iter().any(|hook| hook.starts_with("cgroup_skb")) {
        let words = format!("{program} may drop its packets");
        return BpfProgram { family: None, packets: Seen::All, words };
    }
    let words = format!(
        "{program} may send what it sends elsewhere, before the rules: its cgroup is another one than that of this process, whose sockets \
         are tried"
    );
    let is_all = |digit: char| hooks.iter().all(|hook| hook.ends_with(digit));
    let family = [('4', Family::V4), ('6', Family::V6)].into_iter().find(|(digit, _)| is_all(*digit));
    BpfProgram { family: family.map(|(_, family)| family), packets: Seen::Sent, words }
}
