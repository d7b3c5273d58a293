//! System calls of a traced run: which of them send messages, and which change nothing that outlives the run.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

use nix::libc;
use nix::unistd::Pid;

const NLMSGHDR: usize = 16;
/// `NLM_F_REQUEST | NLM_F_DUMP`: lists, and changes nothing.
const DUMP: u16 = 0x301;
/// Single requests of the subsystems of netfilter that read: of ctnetlink an entry and the number of entries,
/// of nf_tables the generation, tables, chains, rules, sets and their elements.
const NETFILTER_READS: [u16; 8] = [0x101, 0x105, 0xa10, 0xa01, 0xa04, 0xa07, 0xa0a, 0xa0d];

/// Calls that read, that write to files which are open already, or that are about the process alone. Any
/// other counts as a change: one too many here costs time, one too few would hide a state.
const CHANGING_NOTHING: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockname,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_newfstatat,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_prlimit64,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_socket,
    libc::SYS_statx,
    libc::SYS_uname,
    libc::SYS_write,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// The system call at which a process is stopped.
#[derive(Debug)]
pub(super) struct Call {
    number: libc::c_long,
    arguments: Vec<u64>,
}

impl Call {
    /// Reads it; `None` where the process runs.
    pub(super) fn of(pid: Pid) -> Option<Self> {
        let line = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
        let mut words = line.split_whitespace();
        let number = words.next()?.parse().ok()?;
        let value = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
        Some(Self { number, arguments: words.map_while(value).collect() })
    }

    fn argument(&self, index: usize) -> u64 {
        self.arguments.get(index).copied().unwrap_or_default()
    }

    /// Whether it sends a message.
    pub(super) fn is_send(&self) -> bool {
        [libc::SYS_sendto, libc::SYS_sendmsg].contains(&self.number)
    }

    /// Whether nothing that outlives the process is another afterwards.
    pub(super) fn changes_nothing(&self) -> bool {
        if self.number == libc::SYS_openat {
            let writing = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC;
            return self.argument(2) & u64::try_from(writing).unwrap() == 0;
        }
        if [libc::SYS_getsockopt, libc::SYS_setsockopt].contains(&self.number) {
            // Options of IP make and replace the tables of iptables-legacy.
            let of_socket = [libc::SOL_SOCKET, libc::SOL_NETLINK].map(|level| u64::try_from(level).unwrap());
            return of_socket.contains(&self.argument(1));
        }
        CHANGING_NOTHING.contains(&self.number)
    }

    /// Whether the netlink messages that it sends only read. One that cannot be taken apart does not.
    pub(super) fn only_reads(&self, pid: Pid) -> bool {
        if self.number != libc::SYS_sendto {
            return false;
        }
        let mut bytes = vec![0; usize::try_from(self.argument(2)).unwrap()];
        let memory = File::open(format!("/proc/{pid}/mem"));
        if memory.and_then(|memory| memory.read_exact_at(&mut bytes, self.argument(1))).is_err() {
            return false;
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let Some(header) = rest.get(..NLMSGHDR) else { return false };
            let length = u32::from_ne_bytes(header[..4].try_into().unwrap());
            let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
            if !reads(half(4), half(6)) {
                return false;
            }
            let aligned = usize::try_from(length).unwrap().next_multiple_of(4);
            rest = rest.get(aligned.max(NLMSGHDR)..).unwrap_or_default();
        }
        !bytes.is_empty()
    }
}

/// Whether a message of this type with these flags only reads. The types of rtnetlink come in fours, the
/// third one reads.
fn reads(kind: u16, flags: u16) -> bool {
    let is_rtnetlink = (16..256).contains(&kind);
    flags == DUMP || NETFILTER_READS.contains(&kind) || is_rtnetlink && kind % 4 == 2
}

#[test]
fn messages_that_change_are_not_taken_for_reading() {
    let (request, ack, create, exclusive) = (1, 4, 0x400, 0x200);
    // Lists of nf_tables, sockets and links; one link; the generation of nf_tables.
    for (kind, flags) in [(0xa01, DUMP), (20, DUMP), (18, DUMP), (18, request), (0xa10, request)] {
        assert!(reads(kind, flags), "{kind:#x} {flags:#x}");
    }
    // The begin of a batch; a link's alias; addresses, routes and policy rules, made and deleted; a rule of
    // nf_tables; entries of connection tracking.
    for kind in [16, 19, 20, 21, 24, 25, 32, 33, 0xa06, 0xa08, 0x100, 0x102] {
        for flags in [request | ack, request | ack | create | exclusive] {
            assert!(!reads(kind, flags), "{kind:#x} {flags:#x}");
        }
    }
}
