//! Versions and version constraints.

use super::{STR, text};
use crate::functions::Functions;
use crate::value::Value;
use crate::value::text::Str;
use std::cmp::Ordering;

pub(crate) fn register(f: &mut Functions) {
    f.add("semver", &[STR], None, |_, args| {
        let source = text(args, 0)?;
        let version = Version::parse(source.as_str()).ok_or("Invalid Semantic Version")?;
        let number = |n: u64| Value::Int(i64::try_from(n).unwrap_or(i64::MAX), crate::value::IntType::Int64);
        let part = |part: &str| Value::Str(Str::derived(part, &[source]));
        let fields = vec![
            ("Major", number(version.numbers.0)),
            ("Minor", number(version.numbers.1)),
            ("Patch", number(version.numbers.2)),
            ("Prerelease", part(&version.pre)),
            ("Metadata", part(&version.meta)),
            ("Original", Value::Str(source.clone())),
            ("String", part(&version.to_string())),
        ];
        Ok(Value::printed_record("*semver.Version", fields, Str::derived(version.to_string(), &[source])))
    });
    f.add("semverCompare", &[STR, STR], None, |_, args| {
        let (constraint, version) = (text(args, 0)?.as_str(), text(args, 1)?.as_str());
        let alternatives = parse_constraints(constraint)?;
        let version = Version::parse(version).ok_or("Invalid Semantic Version")?;
        Ok(Value::Bool(alternatives.iter().any(|all| all.iter().all(|c| c.accepts(&version)))))
    });
}

#[derive(Debug, PartialEq, Eq)]
struct Version {
    numbers: (u64, u64, u64),
    pre: String,
    meta: String,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor, patch) = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        if !self.pre.is_empty() {
            write!(f, "-{}", self.pre)?;
        }
        if !self.meta.is_empty() {
            write!(f, "+{}", self.meta)?;
        }
        Ok(())
    }
}

/// Identifiers of letters, digits and dashes between dots.
fn are_identifiers(text: &str) -> bool {
    text.split('.')
        .all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'))
}

/// Numbers (up to three, `None` for a wildcard), pre-release and metadata.
fn pieces(text: &str) -> Option<(Vec<Option<u64>>, &str, &str)> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (text, meta) = text.split_once('+').map_or((text, None), |(t, m)| (t, Some(m)));
    let (text, pre) = text.split_once('-').map_or((text, None), |(t, p)| (t, Some(p)));
    if !pre.into_iter().chain(meta).all(are_identifiers) {
        return None;
    }
    let mut numbers = Vec::new();
    for part in text.split('.') {
        let is_number = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        numbers.push(match part {
            "x" | "X" | "*" => None,
            _ if is_number => Some(part.parse().ok()?),
            _ => return None,
        });
    }
    (numbers.len() <= 3).then_some((numbers, pre.unwrap_or_default(), meta.unwrap_or_default()))
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let (numbers, pre, meta) = pieces(text)?;
        let mut numbers = numbers.into_iter();
        let mut next = || numbers.next().unwrap_or(Some(0));
        Some(Self { numbers: (next()?, next()?, next()?), pre: pre.to_owned(), meta: meta.to_owned() })
    }

    fn order(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => order_pre(&self.pre, &other.pre),
        })
    }
}

/// Part by part: numbers by value and before words, a missing part before any.
fn order_pre(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        let (a, b) = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => (a, b),
        };
        let order = match (a.parse::<u64>(), b.parse::<u64>()) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => a.cmp(b),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// How many numbers of a constraint are given; the others are wildcards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Given {
    None,
    Major,
    Minor,
    All,
}

#[derive(Debug)]
struct Constraint {
    operator: String,
    version: Version,
    given: Given,
}

fn parse_constraints(text: &str) -> Result<Vec<Vec<Constraint>>, String> {
    let bad = || format!("improper constraint: {text}");
    text.split("||").map(|all| parse_all(all).ok_or_else(bad)).collect()
}

/// Constraints that must all hold: separated by blanks or commas, or a range `a - b`.
fn parse_all(text: &str) -> Option<Vec<Constraint>> {
    let spaced = text.replace(',', " ");
    let mut words = spaced.split_whitespace().peekable();
    let mut all = Vec::new();
    while let Some(word) = words.next() {
        let digits = word.trim_start_matches(['=', '!', '<', '>', '~', '^']);
        let operator = word.get(..word.len() - digits.len())?;
        let version = if digits.is_empty() { words.next()? } else { digits };
        if operator.is_empty() && words.peek() == Some(&"-") {
            words.next();
            all.push(Constraint::new(">=", version)?);
            all.push(Constraint::new("<=", words.next()?)?);
        } else {
            all.push(Constraint::new(operator, version)?);
        }
    }
    (!all.is_empty()).then_some(all)
}

impl Constraint {
    fn new(operator: &str, version: &str) -> Option<Self> {
        if !matches!(operator, "" | "=" | "!=" | ">" | "<" | ">=" | "=>" | "<=" | "=<" | "~" | "~>" | "^") {
            return None;
        }
        let (numbers, pre, meta) = pieces(version)?;
        let known: Vec<u64> = numbers.into_iter().map_while(|n| n).collect();
        let (given, numbers) = match known.as_slice() {
            [] => (Given::None, (0, 0, 0)),
            [major] => (Given::Major, (*major, 0, 0)),
            [major, minor] => (Given::Minor, (*major, *minor, 0)),
            [major, minor, patch, ..] => (Given::All, (*major, *minor, *patch)),
        };
        let version = Version { numbers, pre: pre.to_owned(), meta: meta.to_owned() };
        Some(Self { operator: operator.to_owned(), version, given })
    }

    fn accepts(&self, v: &Version) -> bool {
        let is_exact = self.given == Given::All;
        let order = v.order(&self.version);
        if !v.pre.is_empty() && self.version.pre.is_empty() && !(self.operator == "!=" && is_exact) {
            return false;
        }
        match self.operator.as_str() {
            "" | "=" if is_exact => order.is_eq(),
            // Masterminds' semver has it that nothing at all is asked for by `~0.0.0`.
            "~" | "~>" if is_exact && self.version.numbers == (0, 0, 0) => true,
            "" | "=" | "~" | "~>" => order.is_ge() && self.same_given(v, Given::Minor),
            "!=" if is_exact => order.is_ne(),
            "!=" => !self.same_given(v, Given::Minor) || (self.given == Given::None && v.numbers.0 != 0),
            ">" if is_exact => order.is_gt(),
            ">" => self.beyond(v).is_gt(),
            "<" => order.is_lt(),
            "<=" | "=<" if is_exact => order.is_le(),
            "<=" | "=<" => self.beyond(v).is_le(),
            "^" => order.is_ge() && self.caret(v),
            _ => order.is_ge(),
        }
    }

    /// Whether the given numbers, but for the patch number, are the version's.
    fn same_given(&self, v: &Version, upto: Given) -> bool {
        let (ours, theirs) = (self.version.numbers, v.numbers);
        let given = self.given.min(upto);
        (given < Given::Major || ours.0 == theirs.0) && (given < Given::Minor || ours.1 == theirs.1)
    }

    /// How the version compares by the given numbers alone.
    fn beyond(&self, v: &Version) -> Ordering {
        let (ours, theirs) = (self.version.numbers, v.numbers);
        let minor = if self.given >= Given::Minor { theirs.1.cmp(&ours.1) } else { Ordering::Equal };
        theirs.0.cmp(&ours.0).then(minor)
    }

    /// The first number that is not zero stays.
    fn caret(&self, v: &Version) -> bool {
        let (major, minor, patch) = self.version.numbers;
        if major > 0 || self.given <= Given::Major {
            return v.numbers.0 == major || self.given == Given::None;
        }
        if v.numbers.0 > 0 {
            return false;
        }
        if minor > 0 || self.given == Given::Minor {
            return v.numbers.1 == minor;
        }
        v.numbers.1 == 0 && v.numbers.2 == patch
    }
}
