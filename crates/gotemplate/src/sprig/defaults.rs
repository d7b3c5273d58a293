//! Defaults, emptiness, JSON.

use super::{ANY, STR, ValueResult, arg, text};
use crate::functions::{Call, Functions, Type};
use crate::json::{COMPACT, Style, encode, to_json};
use crate::value::Value;
use serde_json::Value as Json;

pub(crate) fn register(f: &mut Functions) {
    f.add("default", &[ANY], Some(ANY), |_, args| {
        Ok(args.get(1).filter(|given| !is_empty(given)).unwrap_or_else(|| arg(args, 0)).clone())
    });
    f.add("empty", &[ANY], None, |_, args| Ok(Value::Bool(is_empty(arg(args, 0)))));
    f.add("coalesce", &[], Some(ANY), |_, args| {
        Ok(args.iter().find(|v| !is_empty(v)).cloned().unwrap_or(Value::Nil))
    });
    f.add("all", &[], Some(ANY), |_, args| Ok(Value::Bool(!args.iter().any(is_empty))));
    f.add("any", &[], Some(ANY), |_, args| Ok(Value::Bool(!args.iter().all(is_empty))));
    f.add("ternary", &[ANY, ANY, Type::Bool], None, |_, args| {
        Ok(arg(args, usize::from(!arg(args, 2).is_true())).clone())
    });
    f.add("fail", &[STR], None, |_, args| Err(text(args, 0)?.as_str().to_owned()));
    for name in ["fromJson", "mustFromJson"] {
        let must = name.starts_with("must");
        f.add(name, &[STR], None, move |call, args| from_json(call, args, must));
    }
    let styles = [
        ("toJson", "mustToJson", COMPACT),
        ("toPrettyJson", "mustToPrettyJson", Style { escape_html: true, indent: Some("  ") }),
        ("toRawJson", "mustToRawJson", Style { escape_html: false, indent: None }),
    ];
    for (name, must, style) in styles {
        for name in [name, must] {
            f.add(name, &[ANY], None, move |call, args| {
                let json = to_json(call, arg(args, 0))?;
                Ok(Value::string(encode(&json, style)))
            });
        }
    }
}

/// sprig's emptiness: zero values; structs never are.
pub(crate) fn is_empty(value: &Value<'_>) -> bool {
    !value.is_true()
}

fn from_json<'a>(call: &mut Call<'_>, args: &[Value<'a>], must: bool) -> ValueResult<'a> {
    let source = text(args, 0)?;
    call.spend(source.as_str().len().saturating_mul(16))?;
    match serde_json::from_str::<Json>(source.as_str()) {
        Ok(json) => Ok(Value::from_owned_json(&json, source)),
        Err(error) if must => Err(error.to_string()),
        Err(_) => Ok(Value::Nil),
    }
}
