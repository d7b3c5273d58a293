//! The connection tracking table of a network namespace, over ctnetlink.

mod attribute;
mod entry;
mod new_connections;
mod request;

use std::fmt;
use std::io;

use attribute::stats;
pub use entry::{Entry, Status, TcpState, Tuple, Zone};
pub use new_connections::{NewConnections, Taken};
pub use request::{Filter, NewEntry};

use super::netlink::{Message, Outcome, Protocol, Reply, Socket};
use super::procfs;
use crate::model::{Family, Transport};

const NFNL_SUBSYS_CTNETLINK: u16 = 1;
/// Length of `struct nfgenmsg`.
const NFGENMSG: usize = 4;
/// How many changes are collected before they are sent.
const CHUNK: usize = 100;
/// How often replies that come between a deletion and what follows it are tried to be kept from making an
/// entry.
const REPLY_ATTEMPTS: usize = 10;
/// Number of entries of this thread's namespace; there as soon as the kernel has connection tracking.
const COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count";

/// The message type; the numbers are those of linux/netfilter/nfnetlink_conntrack.h.
#[derive(Clone, Copy)]
#[repr(u16)]
enum Kind {
    New = 0,
    Get = 1,
    Delete = 2,
    GetStats = 5,
}

impl Kind {
    const fn number(self) -> u16 {
        (NFNL_SUBSYS_CTNETLINK << 8) | self as u16
    }
}

/// Why the table cannot be reached.
#[derive(Debug)]
pub enum ConntrackError {
    /// The kernel has no ctnetlink, and no module of it that could be loaded.
    Unsupported,
    /// This process may not reach the table.
    Forbidden,
    /// Any other kernel error.
    Other(io::Error),
}

impl fmt::Display for ConntrackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("the kernel has no ctnetlink (module nf_conntrack_netlink)"),
            Self::Forbidden => f.write_str("the kernel refuses ctnetlink: missing capability NET_ADMIN"),
            Self::Other(error) => write!(f, "the kernel refuses a ctnetlink request: {error}"),
        }
    }
}

impl std::error::Error for ConntrackError {}

impl From<io::Error> for ConntrackError {
    /// Classifies an error of the first request.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::PermissionDenied {
            Self::Forbidden
        } else if means_absent(&error) {
            Self::Unsupported
        } else {
            Self::Other(error)
        }
    }
}

/// The number of entries without a netlink request, which could load a module; `None` if `/proc` does not
/// have it.
#[must_use]
pub fn count_in_proc() -> Option<usize> {
    procfs::read(COUNT).ok()?.trim().parse().ok()
}

/// A change of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The entry is deleted.
    Delete,
    /// The TCP connection of the entry goes on. Once that is closed, by whichever side, a SYN on the same
    /// ports deletes the entry and is looked up as a new connection.
    DeleteOnSyn,
    /// The TCP connection goes on as with [`Self::DeleteOnSyn`], where packets of it may have passed unseen.
    /// The kernel forgets the window by itself when tracking begins again, but not the last acknowledged
    /// number: a reset that does not have it leaves the entry established.
    Resume {
        /// One side may have closed it unseen. Its entry takes the state TIME_WAIT: data still pass, and
        /// whatever else is seen of its end, it leaves the entry in a state in which a SYN deletes it. From
        /// ESTABLISHED the close of the other side leads to CLOSE_WAIT, where a SYN on the same ports follows
        /// the entry for a minute.
        closing: bool,
        /// The connection is established. An entry of which the kernel saw one side only, an acknowledgement
        /// for instance, is that of a new connection until the other side sends: TPROXY would take the
        /// packets of its client.
        seen_reply: bool,
    },
}

/// A connection to the table of the network namespace in which it was opened.
///
/// The kernel keeps the entries of all namespaces in one hash table. Listing them walks all of it: 5 to 10 ms
/// for its usual 262,144 buckets, with a filter or without, and however few entries there are. So one dump
/// serves both families and every purpose of the moment.
#[derive(Debug)]
pub struct Conntrack {
    /// Lists entries.
    list: Socket,
    /// Changes entries, also while they are listed.
    change: Socket,
}

impl Conntrack {
    /// Opens the table of the current thread's network namespace. This loads the module
    /// `nf_conntrack_netlink` where it is missing and may be loaded.
    ///
    /// # Errors
    /// See [`ConntrackError`].
    pub fn open() -> Result<Self, ConntrackError> {
        let open = || -> io::Result<Self> {
            let mut table =
                Self { list: Socket::open(Protocol::Netfilter)?, change: Socket::open(Protocol::Netfilter)? };
            table.count().map(|_| table)
        };
        open().map_err(ConntrackError::from)
    }

    /// The number of entries in the namespace, of all families and protocols.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn count(&mut self) -> io::Result<u32> {
        self.list.query(&request::stats(), |reply| {
            reply.attributes(NFGENMSG).of(stats::ENTRIES).and_then(|count| count.be32()).unwrap_or(0)
        })
    }

    /// The entries that `filter` admits. An entry that changes meanwhile may be listed twice.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn dump(&mut self, filter: Filter) -> io::Result<Vec<Entry>> {
        let listed = self.list.dump(&filter.dump(), |list: &mut Vec<Entry>, reply| {
            list.extend(listed(filter, reply));
        })?;
        log::debug!("conntrack table walked ({filter}): {} entries", listed.len());
        Ok(listed)
    }

    /// Changes the entries that `filter` admits and `change` picks, while they are listed: memory does not
    /// grow with their number. Returns how many there were.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn change_if(
        &mut self,
        filter: Filter,
        mut change: impl FnMut(&Entry) -> Option<Change>,
    ) -> io::Result<usize> {
        let changed = self.change_while_listing(filter, |entry| Some(change(entry)?.request(entry)))?;
        log::debug!("conntrack table walked ({filter}): {changed} entries changed");
        Ok(changed)
    }

    /// Changes these entries, as far as they are still there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn change(&mut self, entries: &[Entry], change: Change) -> io::Result<()> {
        let messages: Vec<Message> = entries.iter().map(|entry| change.request(entry)).collect();
        self.change.requests(&messages, &[libc::ENOENT])?.done().map(drop)
    }

    /// The entry that has the original tuple and the zone of `entry` now.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn find(&mut self, entry: &Entry) -> io::Result<Option<Entry>> {
        present(self.list.query(&request::find(entry), Entry::read))
    }

    /// Deletes entries, and makes others in the place of some. One that is gone, or is there, is not an
    /// error.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn replace(&mut self, entries: &[(Entry, Option<NewEntry>)]) -> io::Result<()> {
        let messages = |(old, new): &(Entry, Option<NewEntry>)| {
            [Some(request::delete(old)), new.as_ref().map(request::create)]
        };
        let messages: Vec<Message> = entries.iter().flat_map(messages).flatten().collect();
        self.change.requests(&messages, &[libc::ENOENT, libc::EEXIST])?.done().map(drop)
    }

    /// Deletes UDP entries that translate nothing. The replies to their queries still come in for a while;
    /// without an entry, the first of them would make one against the direction of the flow, which its next
    /// query would follow instead of the rules.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn delete_keeping_replies(&mut self, entries: &[Entry]) -> io::Result<()> {
        for entry in entries {
            let mut old = *entry;
            for _ in 0..REPLY_ATTEMPTS {
                let messages = [request::delete(&old), request::replies(entry)];
                if self.change.requests(&messages, &[libc::ENOENT, libc::EEXIST])?.done()? == messages.len() {
                    break;
                }
                // The flow has ended, or a reply came in between.
                old = Entry { original: entry.original.reversed(), id: None, ..*entry };
            }
        }
        Ok(())
    }

    /// Deletes entries against the direction of these flows: a reply makes one that was looked up after the
    /// entry of its flow was deleted, and comes to its socket after an entry for replies is there. The kernel
    /// keeps it for a second, and finds it by the tuple of a query only.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn delete_against(&mut self, flows: &[Entry]) -> io::Result<()> {
        for flow in flows {
            let found = self.find(flow)?.filter(|found| found.original != flow.original);
            if let Some(found) = found {
                self.delete(&Entry { id: found.id, ..*flow })?;
            }
        }
        Ok(())
    }

    /// Deletes one entry; false if it ended by itself, or gave way to another one.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn delete(&mut self, entry: &Entry) -> io::Result<bool> {
        Ok(self.change.requests(&[request::delete(entry)], &[libc::ENOENT])?.done()? == 1)
    }

    /// Sets the mark of one entry; false if it is gone.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_mark(&mut self, entry: &Entry, mark: u32) -> io::Result<bool> {
        Ok(self.change.requests(&[request::set_mark(entry, mark)], &[libc::ENOENT])?.done()? == 1)
    }

    /// Makes entries for established TCP connections. One that exists is counted as `expected`.
    ///
    /// # Errors
    /// The socket fails. What the kernel refuses is in the outcome.
    pub fn create(&mut self, entries: &[NewEntry]) -> io::Result<Outcome> {
        let messages: Vec<Message> = entries.iter().map(request::create).collect();
        self.change.requests(&messages, &[libc::EEXIST])
    }

    /// Leaves a number in the namespace for later runs: an entry that no packet belongs to, which ends by
    /// itself after a day. Replaces an earlier note.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn leave_note(&mut self, number: u32) -> io::Result<()> {
        self.remove_note()?;
        self.change.requests(&[request::note(number)], &[])?.done().map(drop)
    }

    /// The number that was left; 0 if the kernel has no marks.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn note(&mut self) -> io::Result<Option<u32>> {
        Ok(present(self.list.query(&request::find_note(), Entry::read))?.map(|entry| entry.mark))
    }

    /// Takes the note away, if there is one.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn remove_note(&mut self) -> io::Result<()> {
        self.change.requests(&[request::delete_note()], &[libc::ENOENT])?.done().map(drop)
    }

    /// An entry that is gone by now, or gave way to another one, is not an error.
    fn change_while_listing(
        &mut self,
        filter: Filter,
        mut request: impl FnMut(&Entry) -> Option<Message>,
    ) -> io::Result<usize> {
        let Self { list, change } = self;
        let mut pending: Vec<Message> = Vec::with_capacity(CHUNK);
        let mut changed: io::Result<usize> = Ok(0);
        let mut flush = |pending: &mut Vec<Message>| {
            if let Ok(count) = &mut changed {
                match change.requests(pending, &[libc::ENOENT]).and_then(Outcome::done) {
                    Ok(more) => *count += more,
                    Err(error) => changed = Err(error),
                }
            }
            pending.clear();
        };
        list.dump(&filter.dump(), |(): &mut (), reply| {
            pending.extend(listed(filter, reply).as_ref().and_then(&mut request));
            if pending.len() >= CHUNK {
                flush(&mut pending);
            }
        })?;
        flush(&mut pending);
        changed
    }
}

impl Change {
    fn request(self, entry: &Entry) -> Message {
        match self {
            Self::Delete => request::delete(entry),
            Self::DeleteOnSyn => request::delete_on_syn(entry),
            Self::Resume { closing, seen_reply } => request::resume(entry, closing, seen_reply),
        }
    }
}

/// The entry in one message of a dump.
fn listed(filter: Filter, reply: &Reply<'_>) -> Option<Entry> {
    let entry = (reply.kind == Kind::New.number()).then(|| Entry::read(reply)).flatten();
    entry.filter(|entry| filter.admits(entry))
}

/// The reply to a query for one entry, which may be absent.
fn present(reply: io::Result<Option<Entry>>) -> io::Result<Option<Entry>> {
    match reply {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        reply => reply,
    }
}

/// Whether an error means that the kernel has no ctnetlink.
fn means_absent(error: &io::Error) -> bool {
    let no_netlink = [libc::EPROTONOSUPPORT, libc::EAFNOSUPPORT, libc::ESOCKTNOSUPPORT];
    let no_subsystem = [libc::EINVAL, libc::EOPNOTSUPP, libc::ENOSYS, libc::ECONNREFUSED];
    error.raw_os_error().is_some_and(|errno| no_netlink.contains(&errno) || no_subsystem.contains(&errno))
}

fn family_number(family: Family) -> u8 {
    let number = match family {
        Family::V4 => libc::AF_INET,
        Family::V6 => libc::AF_INET6,
    };
    u8::try_from(number).unwrap_or(0)
}

fn family_of(number: u8) -> Option<Family> {
    Family::ALL.into_iter().find(|family| family_number(*family) == number)
}

fn number_of(transport: Transport) -> u8 {
    let number = match transport {
        Transport::Tcp => libc::IPPROTO_TCP,
        Transport::Udp => libc::IPPROTO_UDP,
    };
    u8::try_from(number).unwrap_or(0)
}

fn transport_of(number: u8) -> Option<Transport> {
    [Transport::Tcp, Transport::Udp].into_iter().find(|transport| number_of(*transport) == number)
}

#[cfg(test)]
mod tests;
