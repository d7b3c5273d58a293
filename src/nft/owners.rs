//! Negated owners. `! --uid-owner 1337` of iptables also matches packets without a socket, such as resets and
//! packets of the kernel's own NFS client; no test of nftables does. So packets of the owners leave the chain
//! first, and the rest matches.

use super::lists::JoinedRule;
use super::types::{Action, ChainName};
use crate::model::{Match, Matcher, Owner, Target};

/// A rule without a negated owner.
#[derive(Clone, Debug)]
pub(super) struct PositiveRule {
    pub(super) draft: JoinedRule,
    /// Several owners of which it is one, in place of the matcher's.
    pub(super) one_of: Vec<Owner>,
    /// The action, where it is not the draft's target.
    pub(super) action: Option<Action>,
}

impl PositiveRule {
    const fn of(draft: JoinedRule) -> Self {
        Self { draft, one_of: Vec::new(), action: None }
    }
}

/// The rules of a chain, in as many chains as are needed, without negated owners.
pub(super) fn without_negations(
    name: ChainName,
    drafts: Vec<JoinedRule>,
) -> Vec<(ChainName, Vec<PositiveRule>)> {
    let mut chains = Vec::new();
    let (mut current, mut rules) = (name, Vec::new());
    let mut drafts = drafts.into_iter().peekable();
    while let Some(draft) = drafts.next() {
        let negated = negated(&draft.matcher);
        if negated.is_empty() {
            rules.push(PositiveRule::of(draft));
            continue;
        }
        let rest_of_packets = JoinedRule { matcher: without_negated(&draft.matcher), ..draft.clone() };
        // "Others leave; this owner leaves" is "this owner leaves; all leave".
        if let Some(owner_leaves) = drafts.next_if(|next| is_complement(&draft, &negated, next)) {
            rules.extend([owner_leaves, rest_of_packets].map(PositiveRule::of));
            continue;
        }
        let rest = name.rest(chains.len() + 1);
        for of_kind in by_kind(negated) {
            rules.push(PositiveRule {
                draft: rest_of_packets.clone(),
                one_of: of_kind,
                action: Some(Action::Goto(rest)),
            });
        }
        let decides_all = rest_of_packets.matcher == Matcher::default() && draft.only.is_none();
        rules.push(PositiveRule::of(rest_of_packets));
        if !(decides_all && is_final(draft.target)) {
            let all = JoinedRule { matcher: Matcher::default(), list: None, only: None, ..draft };
            rules.push(PositiveRule { action: Some(Action::Goto(rest)), ..PositiveRule::of(all) });
        }
        chains.push((current, std::mem::take(&mut rules)));
        current = rest;
    }
    chains.push((current, rules));
    chains
}

fn negated(matcher: &Matcher) -> Vec<Owner> {
    let owners = matcher.owners.iter().filter_map(|owner| match owner {
        Match::Not(owner) => Some(*owner),
        Match::Is(_) => None,
    });
    owners.collect()
}

fn without_negated(matcher: &Matcher) -> Matcher {
    let mut matcher = matcher.clone();
    matcher.owners.retain(|owner| matches!(owner, Match::Is(_)));
    matcher
}

/// Whether `next` does the same to every packet of the one negated owner.
fn is_complement(draft: &JoinedRule, negated: &[Owner], next: &JoinedRule) -> bool {
    let [owner] = negated else { return false };
    let whole = Matcher { owners: vec![Match::Is(*owner)], ..Matcher::default() };
    let families = next.only.is_none() || next.only == draft.only;
    let same = next.target == draft.target && is_final(draft.target);
    next.matcher == whole && next.list.is_none() && families && same
}

/// Whether the packet does not get to the next rule of the chain.
const fn is_final(target: Target) -> bool {
    matches!(target, Target::Accept | Target::Drop | Target::Return)
}

/// Users and groups are in sets of their own.
fn by_kind(owners: Vec<Owner>) -> impl Iterator<Item = Vec<Owner>> {
    let (users, groups): (Vec<_>, Vec<_>) =
        owners.into_iter().partition(|owner| matches!(owner, Owner::Uid(_)));
    [users, groups].into_iter().filter(|owners| !owners.is_empty())
}
