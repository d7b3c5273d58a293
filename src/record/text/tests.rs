//! Records as text: writing and parsing.

use super::*;

fn block(number: u64) -> Block {
    let (table, hook) = *get(&CHAINS, number % 6).unwrap();
    let (part, behind_jump) = *get(&PARTS, number / 6 % 4).unwrap();
    let chain = u32::try_from((number / 3 * 1_000_003) & 0xff_ffff).unwrap();
    let position = Position { before: usize::try_from(number * 7).unwrap(), chain };
    Block {
        variant: *get(&Variant::ALL, number % 2).unwrap(),
        family: *get(&Family::ALL, number / 2 % 2).unwrap(),
        table,
        hook,
        part,
        behind_jump,
        count: usize::try_from(number + 1).unwrap(),
        digest: u32::try_from((number * 99_999_989) & 0x3fff_ffff).unwrap(),
        at: [
            None,
            Some(BlockLocation::Position(position)),
            Some(BlockLocation::New),
            Some(BlockLocation::Handle(number << 40)),
        ][usize::try_from(number % 4).unwrap()],
    }
}

/// A run under way that writes transitional rules before the final ones, with this many rules each.
fn record(blocks: u64) -> Record {
    // What is written has another digest than what was found.
    let set = |from: u64| (100 * from..100 * from + blocks).map(block).collect::<BTreeSet<_>>();
    let numbering = Numbering { table: 70, highest: u64::MAX };
    Record {
        variants: Variant::ALL.into(),
        live: set(0),
        unfinished: vec![set(1), set(2)],
        numbering: [((Family::V6, Table::Nat), numbering), ((Family::V4, Table::Raw), numbering)].into(),
        left: BTreeSet::new(),
        earlier_ports: BTreeSet::new(),
        incomplete: false,
        passthrough: true,
    }
}

#[test]
fn record_reads_back_as_written() {
    let both = |block: Block| Family::ALL.map(|family| Block { family, ..block });
    for blocks in 0..40 {
        let mut record = record(blocks);
        record.live.extend(record.live.clone().into_iter().flat_map(both));
        let unplaced = |number| Block { at: None, ..block(number) };
        record.left = (0..blocks).map(unplaced).flat_map(both).collect();
        record.earlier_ports = (0..blocks).map(|number| u16::try_from(number * 1680).unwrap()).collect();
        assert_eq!(record.to_string().parse(), Ok(record));
    }
}

#[test]
fn record_that_is_too_long_loses_what_matters_least_first() {
    let mut kept = [0; 3];
    for blocks in 0..60 {
        let whole = record(blocks);
        let alias = whole.alias();
        assert!(alias.len() <= crate::record::LONGEST, "{alias}");
        let read = Record::read(Some(&alias)).unwrap();
        assert!(read.is_changing() && read.is_incomplete() == (read != whole), "{alias}");
        assert!(read.live.is_subset(&whole.live));
        kept[0] += usize::from(read.unfinished == whole.unfinished);
        kept[1] += usize::from(read.unfinished.last() == whole.unfinished.last());
        kept[2] += usize::from(read.live == whole.live);
    }
    assert!(5 < kept[0] && kept[0] < kept[1] && kept[1] < kept[2], "{kept:?}");
}

/// How many blocks fit, the last one with this place; those of both families that are equal count once.
fn most(place: impl Fn(u64) -> BlockLocation) -> u64 {
    let blocks = |count: u64| {
        (0..count).map(|number| Block { at: Some(place(number)), count: 1, ..block(4 + 12 * number) })
    };
    let variant = |count: u64| blocks(count).map(|block| block.variant).collect();
    let fits = |count: &u64| {
        let record = Record::of_blocks(variant(*count), blocks(*count).collect(), true);
        assert_eq!(record.live.len() as u64, *count);
        record.to_string().len() <= crate::record::LONGEST
    };
    (1..100).take_while(fits).last().unwrap_or_default()
}

/// The figures of docs/parity.md.
#[test]
fn alias_has_room_for_19_to_33_groups() {
    let position = |before: u64, chain: u32| {
        BlockLocation::Position(Position { before: usize::try_from(before).unwrap(), chain })
    };
    let written = most(|_| BlockLocation::New);
    let found = [most(BlockLocation::Handle), most(|number| BlockLocation::Handle(2000 + number))];
    let legacy =
        [most(|number| position(number, 7)), most(|number| position(3, u32::try_from(number).unwrap()))];
    assert_eq!((written, found, legacy), (33, [29, 23], [27, 19]));
}

#[test]
fn record_of_another_version_says_that_rules_may_be_there() {
    for alias in [
        "istio-iptables:1 n znt0a1B-2@3/5",
        "istio-iptables:2 n0",
        "istio-iptables:4",
        "istio-iptables:3 n0 1%",
    ] {
        let read = Record::read(Some(alias)).unwrap();
        assert!(read.is_incomplete() && read.blocks().next().is_none(), "{alias}");
    }
}

#[test]
fn foreign_alias_is_not_a_record() {
    for alias in ["", "uplink", "istio"] {
        assert_eq!((alias.parse::<Record>(), Record::read(Some(alias))), (Err(NotOurs), None), "{alias}");
    }
}
