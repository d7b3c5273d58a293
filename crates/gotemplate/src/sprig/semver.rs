//! Versions and version constraints.

use super::{STR, text};
use crate::functions::Functions;
use crate::value::Value;
use crate::value::text::Str;
use semver::{BuildMetadata, Prerelease, Version};
use std::cmp::Ordering;

pub(crate) fn register(f: &mut Functions) {
    f.add("semver", &[STR], None, |_, args| {
        let source = text(args, 0)?;
        let version = parse(source.as_str()).ok_or("Invalid Semantic Version")?;
        let number = |n: u64| Value::Int(i64::try_from(n).unwrap_or(i64::MAX), crate::value::IntType::Int64);
        let part = |part: &str| Value::Str(Str::derived(part, &[source]));
        let fields = vec![
            ("Major", number(version.major)),
            ("Minor", number(version.minor)),
            ("Patch", number(version.patch)),
            ("Prerelease", part(&version.pre)),
            ("Metadata", part(&version.build)),
            ("Original", Value::Str(source.clone())),
            ("String", part(&version.to_string())),
        ];
        Ok(Value::printed_record("*semver.Version", fields, Str::derived(version.to_string(), &[source])))
    });
    f.add("semverCompare", &[STR, STR], None, |_, args| {
        let (constraint, version) = (text(args, 0)?.as_str(), text(args, 1)?.as_str());
        let alternatives = parse_constraints(constraint)?;
        let version = parse(version).ok_or("Invalid Semantic Version")?;
        Ok(Value::Bool(alternatives.iter().any(|all| all.iter().all(|c| c.accepts(&version)))))
    });
}

/// Numbers (up to three, `None` for a wildcard), pre-release and metadata.
fn pieces(text: &str) -> Option<(Vec<Option<u64>>, Prerelease, BuildMetadata)> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (text, build) = match text.split_once('+') {
        Some((text, build)) => (text, BuildMetadata::new(build).ok().filter(|build| !build.is_empty())?),
        None => (text, BuildMetadata::EMPTY),
    };
    let (text, pre) = match text.split_once('-') {
        Some((text, pre)) => (text, Prerelease::new(pre).ok().filter(|pre| !pre.is_empty())?),
        None => (text, Prerelease::EMPTY),
    };
    let number = |part: &str| match part {
        "x" | "X" | "*" => Some(None),
        _ if part.bytes().all(|b| b.is_ascii_digit()) => part.parse().ok().map(Some),
        _ => None,
    };
    let numbers: Vec<Option<u64>> = text.split('.').map(number).collect::<Option<_>>()?;
    (numbers.len() <= 3).then_some((numbers, pre, build))
}

/// A version as Masterminds' semver reads it: with or without `v`, minor and patch number.
fn parse(text: &str) -> Option<Version> {
    let (numbers, pre, build) = pieces(text)?;
    let mut numbers = numbers.into_iter();
    let mut next = || numbers.next().unwrap_or(Some(0));
    Some(Version { major: next()?, minor: next()?, patch: next()?, pre, build })
}

/// How many numbers of a constraint are given; the others are wildcards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Precision {
    None,
    Major,
    Minor,
    All,
}

#[derive(Debug)]
struct Constraint {
    operator: String,
    version: Version,
    precision: Precision,
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
        let (numbers, pre, build) = pieces(version)?;
        let known: Vec<u64> = numbers.into_iter().map_while(|n| n).collect();
        let precision = [Precision::None, Precision::Major, Precision::Minor, Precision::All]
            .get(known.len())
            .copied()?;
        let number = |at: usize| known.get(at).copied().unwrap_or_default();
        let version = Version { major: number(0), minor: number(1), patch: number(2), pre, build };
        Some(Self { operator: operator.to_owned(), version, precision })
    }

    fn accepts(&self, v: &Version) -> bool {
        let is_exact = self.precision == Precision::All;
        let ours = &self.version;
        let order = v.cmp_precedence(ours);
        if !v.pre.is_empty() && ours.pre.is_empty() && !(self.operator == "!=" && is_exact) {
            return false;
        }
        match self.operator.as_str() {
            "" | "=" if is_exact => order.is_eq(),
            // Masterminds' semver has it that nothing at all is asked for by `~0.0.0`.
            "~" | "~>" if is_exact && (ours.major, ours.minor, ours.patch) == (0, 0, 0) => true,
            "" | "=" | "~" | "~>" => order.is_ge() && self.has_same_numbers(v, Precision::Minor),
            "!=" if is_exact => order.is_ne(),
            "!=" => {
                !self.has_same_numbers(v, Precision::Minor)
                    || (self.precision == Precision::None && v.major != 0)
            }
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
    fn has_same_numbers(&self, v: &Version, upto: Precision) -> bool {
        let (ours, precision) = (&self.version, self.precision.min(upto));
        (precision < Precision::Major || ours.major == v.major)
            && (precision < Precision::Minor || ours.minor == v.minor)
    }

    /// How the version compares by the given numbers alone.
    fn beyond(&self, v: &Version) -> Ordering {
        let minor = if self.precision >= Precision::Minor {
            v.minor.cmp(&self.version.minor)
        } else {
            Ordering::Equal
        };
        v.major.cmp(&self.version.major).then(minor)
    }

    /// The first number that is not zero stays.
    fn caret(&self, v: &Version) -> bool {
        let Version { major, minor, patch, .. } = self.version;
        if major > 0 || self.precision <= Precision::Major {
            return v.major == major || self.precision == Precision::None;
        }
        if minor > 0 || self.precision == Precision::Minor {
            return v.major == 0 && v.minor == minor;
        }
        (v.major, v.minor, v.patch) == (0, 0, patch)
    }
}
