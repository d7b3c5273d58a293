//! Notices of changes in many network namespaces, by one socket.
//!
//! The kernel sends notices of other namespaces to a socket in whose own namespace they have an id. Ids are
//! given in a namespace that nothing else is in, so that neither that of the node nor those of the pods
//! change, and pods without a link to the node (SR-IOV, macvlan) are no different. An id does not keep a
//! namespace from ending.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use nfnetlink::nftables::{Change, Changes};
use nix::sched::{CloneFlags, unshare};

use super::netlink::{Message, Protocol, Socket};
use super::netns::Namespace;

/// `RTM_NEWNSID`.
const NEW_ID: u16 = 88;
/// `RTM_GETNSID`.
const GET_ID: u16 = 90;
/// `NETNSA_NSID`.
const ID: u16 = 1;
/// `NETNSA_FD`.
const FILE: u16 = 3;
/// `struct rtgenmsg`, padded.
const HEADER: [u8; 4] = [0; 4];
/// Lets the kernel choose.
const ANY: i32 = -1;

/// A socket for the notices of all network namespaces that were added.
#[derive(Debug)]
pub struct NodeWatch {
    changes: Changes,
    /// Keeps the ids.
    ids: Socket,
}

impl NodeWatch {
    /// Opens it, without a namespace.
    ///
    /// # Errors
    /// The kernel refuses: `EPERM` without CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_BROADCAST.
    pub fn open() -> io::Result<Self> {
        let open = || -> io::Result<Self> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(Self { changes: Changes::open_for_all_with_id()?, ids: Socket::open(Protocol::Route)? })
        };
        // The thread that enters the new namespace ends: the sockets stay there.
        std::thread::scope(|scope| {
            let opened = std::thread::Builder::new().spawn_scoped(scope, open)?;
            opened.join().map_err(|_| io::Error::other("the thread that opens sockets panicked"))?
        })
    }

    /// Adds a namespace. What changes there from now on is noticed, with this id. After the end of the
    /// namespace, another one may get it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn add(&mut self, namespace: &Namespace) -> io::Result<i32> {
        let file = namespace.as_fd().as_raw_fd().to_ne_bytes();
        let new = Message::new(NEW_ID, 0, &HEADER).with(ID, &ANY.to_ne_bytes()).with(FILE, &file);
        match self.ids.request(&new) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let get = Message::new(GET_ID, 0, &HEADER).with(FILE, &file);
        let id = self.ids.query(&get, |reply| {
            let id = reply.attributes(HEADER.len()).of(ID);
            id.and_then(|id| id.payload.first_chunk().copied()).map(i32::from_ne_bytes)
        })?;
        id.filter(|id| *id >= 0).ok_or_else(|| io::Error::other("the kernel gives the namespace no id"))
    }

    /// The changes of other processes that were noticed so far; `None` if some notices are lost.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take(&mut self) -> io::Result<Option<Vec<Change>>> {
        self.changes.take()
    }
}

impl AsFd for NodeWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlab::process::run;
    use netlab::{Kinds, in_new_namespace};
    use std::path::Path;

    fn program_of(watch: &mut NodeWatch) -> Vec<(Option<i32>, String)> {
        let changes = watch.take().unwrap().expect("no notice is lost");
        changes.into_iter().map(|change| (change.namespace, change.program)).collect()
    }

    #[test]
    fn changes_of_each_namespace_that_was_added_are_noticed_with_its_id() {
        let mut watch = NodeWatch::open().unwrap();
        let namespaces = [netlab::Namespace::new(), netlab::Namespace::new(), netlab::Namespace::new()];
        let add = |watch: &mut NodeWatch, namespace: &netlab::Namespace| {
            watch.add(&Namespace::open(Path::new(&namespace.path())).unwrap()).unwrap()
        };
        let [first, second, other] = &namespaces;
        let ids = [add(&mut watch, first), add(&mut watch, second)];
        assert_eq!(ids[0], add(&mut watch, first), "twice is once");
        assert_ne!(ids[0], ids[1]);
        for namespace in [second, other, first] {
            namespace.run(|| run("nft", &["add", "table", "inet", "a"]));
        }
        let wanted = [(Some(ids[1]), "nft".to_owned()), (Some(ids[0]), "nft".to_owned())];
        assert_eq!(program_of(&mut watch), wanted);
    }

    #[test]
    fn one_notice_is_received_for_each_transaction() {
        let mut watch = NodeWatch::open().unwrap();
        in_new_namespace(|| {
            watch.add(&Namespace::open(Path::new("/proc/thread-self/ns/net")).unwrap()).unwrap();
            let rules = "add rule inet a c counter\n".repeat(100);
            netlab::process::run_with_input(
                "nft",
                &["-f", "-"],
                &format!("add table inet a\nadd chain inet a c\n{rules}"),
            );
            assert_eq!(program_of(&mut watch).len(), 1);
        });
    }

    #[test]
    fn namespaces_of_other_user_namespaces_are_noticed() {
        let none: [(&str, &str); 0] = [];
        let holder = netlab::Holder::new(Kinds { user: true, net: true, mount: false }, "true", none);
        let mut watch = NodeWatch::open().unwrap();
        let path = format!("/proc/{}/ns/net", holder.pid());
        let namespace = Namespace::open(Path::new(&path)).unwrap();
        watch.add(&namespace).unwrap();
        in_new_namespace(move || {
            namespace.enter().unwrap();
            run("nft", &["add", "table", "inet", "a"]);
        });
        assert_eq!(program_of(&mut watch).len(), 1);
    }
}
