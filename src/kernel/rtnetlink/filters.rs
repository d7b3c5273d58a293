//! Filters of `tc` that may drop packets, or send them elsewhere.

use std::collections::BTreeSet;
use std::io;

use super::Rtnetlink;
use crate::kernel::netlink::{Attribute, Message, Reply};
use crate::model::DeviceHook;

/// Length of `struct tcmsg`, and where it has what it has.
const TCMSG: usize = 20;
const LINK: usize = 4;
const HANDLE: usize = 8;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_NAME: u16 = 7;
/// The attribute with actions, for each kind of filter (`TCA_U32_ACT` and so on).
const ACTIONS: [(&str, u16); 9] = [
    ("basic", 3),
    ("bpf", 1),
    ("cgroup", 1),
    ("flow", 9),
    ("flower", 3),
    ("fw", 4),
    ("matchall", 2),
    ("route", 6),
    ("u32", 7),
];
/// `TC_H_CLSACT` with `TC_H_MIN_INGRESS`, and with `TC_H_MIN_EGRESS`.
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;

/// A queueing discipline, which may have filters.
struct Discipline {
    link: u32,
    handle: u32,
    kind: String,
}

impl Rtnetlink {
    /// The filters of each interface that may drop, redirect or change packets. Filters that only classify
    /// them are left out.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn filters(&mut self) -> io::Result<Vec<DeviceHook>> {
        let message = Message::new(libc::RTM_GETQDISC, 0, &[0; TCMSG]);
        let listed = self.socket.dump(&message, |list: &mut Vec<Discipline>, reply| {
            let kind = reply.attributes(TCMSG).of(TCA_KIND).filter(|_| reply.kind == libc::RTM_NEWQDISC);
            list.extend(kind.map(|kind| Discipline {
                link: reply.word(LINK),
                handle: reply.word(HANDLE),
                kind: kind.text(),
            }));
        });
        let disciplines = match listed {
            // A kernel without queueing disciplines: gVisor, or Linux without CONFIG_NET_SCHED.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Vec::new(),
            listed => listed?,
        };
        let mut found = Vec::new();
        for Discipline { link, handle, kind } in disciplines {
            let parents: &[(u32, bool)] = match kind.as_str() {
                "clsact" => &[(INGRESS, false), (EGRESS, true)],
                "ingress" => &[(INGRESS, false)],
                // Those that an interface has by itself.
                _ if handle == 0 => &[],
                _ => &[(handle, true)],
            };
            for &(parent, leaves) in parents {
                for what in self.filters_of(link, parent)? {
                    found.push(DeviceHook { interface: self.link_name(link), what, leaves });
                }
            }
        }
        Ok(found)
    }

    fn filters_of(&mut self, link: u32, parent: u32) -> io::Result<BTreeSet<String>> {
        let mut header = [0; TCMSG];
        for (bytes, value) in header[LINK..].chunks_mut(4).zip([link, 0, parent]) {
            bytes.copy_from_slice(&value.to_ne_bytes());
        }
        let message = Message::new(libc::RTM_GETTFILTER, 0, &header);
        let listed = self.socket.dump(&message, |list: &mut BTreeSet<String>, reply| {
            list.extend(deciding(reply));
        });
        match listed {
            // It has no filters of its own.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                Ok(BTreeSet::new())
            }
            other => other,
        }
    }
}

/// A filter that may decide, in words.
fn deciding(reply: &Reply<'_>) -> Option<String> {
    let attributes = reply.attributes(TCMSG);
    let kind = attributes.of(TCA_KIND).filter(|_| reply.kind == libc::RTM_NEWTFILTER)?.text();
    let options = attributes.of(TCA_OPTIONS)?;
    let has_actions = |actions: u16| options.nested().of(actions).is_some();
    let known = ACTIONS.iter().find(|(name, _)| *name == kind);
    let decides = kind == "bpf" || known.is_none_or(|(_, actions)| has_actions(*actions));
    let name =
        options.nested().of(TCA_BPF_NAME).filter(|_| kind == "bpf").map(|name: Attribute<'_>| name.text());
    let name = name.map_or_else(String::new, |name| format!(" {name}"));
    decides.then(|| format!("a filter of tc ({kind}{name})"))
}
