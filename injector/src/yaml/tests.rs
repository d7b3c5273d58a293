use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;

#[test]
fn plain_scalars_mean_what_go_makes_of_them() {
    for (text, expected) in [
        ("y", json!(true)),
        ("No", json!(false)),
        ("ON", json!(true)),
        ("off", json!(false)),
        ("yEs", json!("yEs")),
        ("012", json!(10)),
        ("0o12", json!(10)),
        ("08", json!(8)),
        ("0x10", json!(16)),
        ("-0x10", json!(-16)),
        ("0b11", json!(3)),
        ("1_000", json!(1000)),
        ("+5", json!(5)),
        ("1e3", json!(1000)),
        ("1e1", json!(10)),
        ("1.5", json!(1.5)),
        (".5", json!(0.5)),
        ("5.", json!(5)),
        ("1e400", json!("1e400")),
        ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
        ("1000629999", json!(1_000_629_999)),
        ("12:30", json!("12:30")),
        ("2001-01-01", json!("2001-01-01")),
        ("1.2.3", json!("1.2.3")),
        ("~", json!(null)),
        ("", json!(null)),
        ("=", json!("=")),
        ("-", json!([null])),
        ("!!str 5", json!("5")),
        ("!!int 5", json!(5)),
        ("! 5", json!("5")),
        ("'5'", json!("5")),
    ] {
        assert_eq!(read(text), Ok(expected), "{text}");
    }
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,12}",
        "[-+0-9._:eExXobaftnyTZ ]{0,8}",
        "[ \\t\\n\\r#:'\"|>a\\-]{0,12}",
        "[a-z]{1,5}(\n {0,3}[a-z#:-]{0,5}){0,4}\n{0,2}",
        Just("yes".to_owned()),
        Just("<<".to_owned()),
        Just("=".to_owned()),
        Just("2001-12-14t21:59:43.10-05:00".to_owned()),
        Just("k".repeat(1500)),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |f| f.is_finite() && f.fract() != 0.0)
            .prop_map(Value::from),
        any_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((any_text(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_written_reads_back(value in any_json()) {
        let text = write(&value);
        prop_assert_eq!(read(&text).map_err(|e| format!("{e}\n{text}")), Ok(value));
    }

    #[test]
    fn any_text_is_answered(text in any_text()) {
        let _ = read_overlay(&text);
        let _ = scalar_spans(&text);
        let documents = read_documents(text.as_bytes());
        if let Ok(documents) = documents {
            let whole: String = documents.iter().flat_map(|d| [d.separator, d.body]).collect();
            prop_assert_eq!(whole, text);
        }
    }
}
