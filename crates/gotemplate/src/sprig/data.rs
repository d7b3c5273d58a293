//! Merging, copying and digging into nested data.

use super::dicts::{as_map, map, own, reaches};
use super::{ANY, DICT, ValueResult, arg};
use crate::functions::{Call, Functions};
use crate::value::text::Str;
use crate::value::{Map, Value};

pub(crate) fn register(f: &mut Functions) {
    let merges =
        [("merge", false), ("mustMerge", false), ("mergeOverwrite", true), ("mustMergeOverwrite", true)];
    for (name, overwrite) in merges {
        f.add(name, &[DICT], Some(DICT), move |call, args| {
            if args.len() == 1 {
                return Ok(arg(args, 0).clone());
            }
            let fresh = Value::dict(std::collections::BTreeMap::new());
            let target = if map(args, 0)?.is_nil() { &fresh } else { arg(args, 0) };
            let to = map(std::slice::from_ref(target), 0)?;
            own(to)?;
            for source in args.iter().skip(1).filter_map(as_map) {
                merge(call, to, source, overwrite, 0)?;
            }
            Ok(target.clone())
        });
    }
    for name in ["deepCopy", "mustDeepCopy"] {
        f.add(name, &[ANY], None, |call, args| copy(call, arg(args, 0), 0));
    }
    f.add("dig", &[], Some(ANY), |_, args| dig(args));
}

/// Adds what `to` lacks, or has empty; with `overwrite` also replaces what it has.
fn merge<'a>(
    call: &mut Call<'_>,
    to: &Map<'a>,
    from: &Map<'a>,
    overwrite: bool,
    depth: usize,
) -> Result<(), String> {
    call.nest(depth)?;
    for (key, new) in from.entries() {
        let old = to.get(key.as_str());
        let replacement = match (&old, &new) {
            (_, Value::Null | Value::Nil) if !overwrite => continue,
            (Some(Value::Map(old)), Value::Map(new)) => {
                let target = if old.own().is_some() {
                    Value::Map(old.clone())
                } else {
                    copy(call, &Value::Map(old.clone()), depth + 1)?
                };
                if let Value::Map(target) = &target {
                    merge(call, target, new, overwrite, depth + 1)?;
                }
                target
            }
            (Some(old), _) if old.is_true() && !overwrite => continue,
            _ => new.clone(),
        };
        let target = own(to)?;
        let is_same = matches!((&old, &replacement), (Some(Value::Map(a)), Value::Map(b)) if a.own().is_some() && a.own().map(std::rc::Rc::as_ptr) == b.own().map(std::rc::Rc::as_ptr));
        if is_same {
            continue;
        }
        if reaches(call, &replacement, target, 0)? {
            return Err("a dictionary cannot contain itself".to_owned());
        }
        call.spend(64)?;
        target.insert(key, replacement);
    }
    Ok(())
}

fn copy<'a>(call: &mut Call<'_>, value: &Value<'a>, depth: usize) -> ValueResult<'a> {
    call.nest(depth)?;
    let elem = |name: &str| match name {
        "string" => "string",
        "int" => "int",
        _ => "interface {}",
    };
    match value {
        Value::Map(map) if !map.is_nil() => {
            let mut entries = std::collections::BTreeMap::<Str<'a>, Value<'a>>::new();
            for (key, value) in map.entries() {
                entries.insert(key, copy(call, &value, depth + 1)?);
            }
            Ok(Value::map_of(entries, elem(&map.elem_name())))
        }
        Value::List(list) if !list.is_nil() => {
            let items: Result<Vec<_>, _> =
                list.to_vec().iter().map(|item| copy(call, item, depth + 1)).collect();
            Ok(Value::list_of(items?, elem(&list.elem_name())))
        }
        other => Ok(other.clone()),
    }
}

/// `dig "a" "b" default dict`
fn dig<'a>(args: &[Value<'a>]) -> ValueResult<'a> {
    let [keys @ .., default, last] = args else {
        return Err("dig needs at least three arguments".to_owned());
    };
    if keys.is_empty() {
        return Err("dig needs at least three arguments".to_owned());
    }
    let mut here = last.clone();
    for key in keys {
        let Value::Str(key) = key else {
            return Err(format!("interface conversion: interface {{}} is {}, not string", key.type_name()));
        };
        let next = match &here {
            Value::Map(map) if map.elem_name() == "interface {}" => map.get(key.as_str()),
            other => {
                return Err(format!(
                    "interface conversion: interface {{}} is {}, not map[string]interface {{}}",
                    other.type_name()
                ));
            }
        };
        match next {
            Some(next) => here = next,
            None => return Ok(default.clone()),
        }
    }
    Ok(here)
}
