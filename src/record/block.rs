//! Consecutive rules of ours in a shared chain: a digest of them, and where they are.

use crate::model::{Family, Hook, HookRules, Rule, Statement, Table, TableHandles, Target, Variant};

/// The position of a group of rules in a shared chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Before the rules that were there.
    Head,
    /// Behind the rules that were there.
    Tail,
}

/// Consecutive rules of ours in a shared chain, none of which jumps to a chain of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    /// Whose tables they are in.
    pub variant: Variant,
    /// The family of the rules.
    pub family: Family,
    /// The table of the rules.
    pub table: Table,
    /// The chain of the rules.
    pub hook: Hook,
    /// Where in the chain.
    pub part: Part,
    /// Whether a jump of ours that was put there with them comes before them.
    pub behind_jump: bool,
    /// The number of rules.
    pub count: usize,
    /// Digest of the rules in order.
    pub digest: u32,
    /// Where they are, as far as it is known.
    pub at: Option<BlockLocation>,
}

/// Where recorded rules are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockLocation {
    /// Where they were put, in a table without handles.
    Position(Position),
    /// Written by the run that made the record: their handles are above [`Numbering::highest`].
    New,
    /// Found with this nf_tables handle and the ones that follow it. No other rule of the table ever gets
    /// these.
    Handle(u64),
}

/// Distinguishes the rules that an nf_tables table has from rules added later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Numbering {
    /// Handle of the table. The kernel never reuses it, while rule handles restart in every new table.
    pub table: u64,
    /// The highest handle of a rule.
    pub highest: u64,
}

impl From<&TableHandles> for Numbering {
    fn from(handles: &TableHandles) -> Self {
        let highest = handles.rules.values().flatten().max().copied().unwrap_or_default();
        Self { table: handles.table, highest }
    }
}

/// A place in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// How many rules come before.
    pub before: usize,
    /// Digest of all rules of the chain, ours and foreign ones, in order.
    pub chain: u32,
}

/// The foreign rules of a shared chain that ours are written into.
#[derive(Clone, Copy, Debug)]
pub struct ForeignRules<'a> {
    /// The hashes of the rules, in order.
    pub hashes: &'a [u32],
    /// How many of them come before our tail.
    pub before: usize,
}

impl ForeignRules<'_> {
    /// Digest of the chain with these rules of ours.
    fn chain(&self, rules: &HookRules) -> u32 {
        let (before, after) = self.hashes.split_at(self.before.min(self.hashes.len()));
        let ours = |rules: &[Rule]| rules.iter().map(|rule| hash(&rule.statement)).collect::<Vec<_>>();
        chain_digest([&ours(&rules.head), before, &ours(&rules.tail), after].concat())
    }
}

/// The blocks of rules that go into a shared chain with these foreign rules.
pub(crate) fn blocks_of(
    variant: Variant,
    family: Family,
    (table, hook): (Table, Hook),
    rules: &HookRules,
    foreign: Option<ForeignRules<'_>>,
) -> Vec<Block> {
    let chain = foreign.map(|foreign| foreign.chain(rules));
    let tail = foreign.map_or(0, |foreign| foreign.before) + rules.head.len();
    let of = |part, rules: &[Rule], begin: usize| -> Vec<Block> {
        let jumps = |rule: &Rule| rule.statement.target.jump().is_some();
        runs(rules)
            .map(move |(offset, run)| Block {
                variant,
                family,
                table,
                hook,
                part,
                behind_jump: offset.checked_sub(1).and_then(|before| rules.get(before)).is_some_and(jumps),
                count: run.len(),
                digest: digest(run.iter().map(|rule| hash(&rule.statement))),
                at: chain.map(|chain| BlockLocation::Position(Position { before: begin + offset, chain })),
            })
            .collect()
    };
    [of(Part::Head, &rules.head, 0), of(Part::Tail, &rules.tail, tail)].concat()
}

/// The runs of rules that jump to no chain of ours, with the place of the first one. A rule that saves marks
/// is a run of its own: it has another form while a run moves from one backend to another.
pub(crate) fn runs(rules: &[Rule]) -> impl Iterator<Item = (usize, &[Rule])> {
    let jumps = |rule: &Rule| rule.statement.target.jump().is_some();
    let saves = |rule: &Rule| rule.statement.target == Target::SaveMark;
    let mut offset = 0;
    rules
        .chunk_by(move |one, next| !jumps(one) && !jumps(next) && !saves(one) && !saves(next))
        .map(move |run| {
            let place = offset;
            offset += run.len();
            (place, run)
        })
        .filter(move |(_, run)| !run.iter().any(jumps))
}

/// FNV-1a of a statement's words.
pub(crate) fn hash(statement: &Statement) -> u32 {
    fnv(statement.to_string().bytes())
}

/// FNV-1a of a foreign rule's words that are not understood.
pub(crate) fn hash_of_words(words: &str) -> u32 {
    fnv(words.bytes())
}

/// FNV-1a of the hashes of all rules of a chain.
pub(crate) fn chain_digest(hashes: impl IntoIterator<Item = u32>) -> u32 {
    // As much as the record has room for.
    digest(hashes) & 0xff_ffff
}

/// FNV-1a of the hashes of several statements.
pub(crate) fn digest(hashes: impl IntoIterator<Item = u32>) -> u32 {
    // As much as the record has room for.
    fnv(hashes.into_iter().flat_map(u32::to_be_bytes)) & 0x3fff_ffff
}

fn fnv(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
