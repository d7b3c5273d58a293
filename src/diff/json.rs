//! The report as JSON.

use serde_json::{Value, json};

use super::difference::Difference;
use super::reason::{Reason, reasons};
use super::text::{NOT_COVERED, class, obstacles};
use super::{Compared, Conclusion};

pub(super) fn json(compared: &Compared<'_>) -> String {
    let result = match compared.conclusion() {
        Conclusion::Different => "different",
        Conclusion::Equal => "equal",
        Conclusion::NotProved => "not-proved",
    };
    let differences = compared.families.values().flat_map(|comparison| &comparison.differences);
    let object = json!({
        "result": result,
        "a": compared.sides[0].name,
        "b": compared.sides[1].name,
        "families": compared.families.keys().map(ToString::to_string).collect::<Vec<_>>(),
        "classes": compared.families.values().map(|comparison| comparison.classes).sum::<usize>(),
        "differences": differences.map(|found| difference(found, compared)).collect::<Vec<_>>(),
        "not_proved": obstacles(compared),
        "not_compared": compared.unknown.iter().map(|(family, _)| family.to_string()).collect::<Vec<_>>(),
        "not_covered": NOT_COVERED,
    });
    format!("{object}\n")
}

fn difference(difference: &Difference, compared: &Compared<'_>) -> Value {
    let [a, b] = reasons(difference, compared.sides);
    json!({
        "family": difference.family.to_string(),
        "packet": difference.witness.json(),
        "words": difference.witness.to_string(),
        "packets": class(difference.family, &difference.class),
        "a": side(a),
        "b": side(b),
    })
}

fn side(Reason { verdict, port, words, because, rule, explain }: Reason) -> Value {
    json!({
        "verdict": verdict,
        "port": port,
        "words": words,
        "because": because,
        "rule": rule,
        "explain": explain,
    })
}
