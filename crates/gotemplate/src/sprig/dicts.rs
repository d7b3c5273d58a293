//! Dictionaries. Those that a template made are changed in place, as in Go; shared input is not.

use super::{ANY, DICT, STR, ValueResult, arg, strval, text};
use crate::functions::{Call, Functions};
use crate::value::text::Str;
use crate::value::{List, Map, OwnMap, Value};
use std::collections::BTreeMap;
use std::rc::Rc;

pub(crate) fn register(f: &mut Functions) {
    f.add("dict", &[], Some(ANY), |call, args| {
        let mut entries = BTreeMap::new();
        for pair in args.chunks(2) {
            let value = pair.get(1).cloned().unwrap_or_else(|| Value::Str(Str::borrowed("")));
            entries.insert(strval(call, arg(pair, 0))?, value);
        }
        Ok(Value::dict(entries))
    });
    f.add("get", &[DICT, STR], None, |_, args| {
        let found = map(args, 0)?.get(text(args, 1)?.as_str());
        Ok(found.unwrap_or_else(|| Value::Str(Str::borrowed(""))))
    });
    f.add("hasKey", &[DICT, STR], None, |_, args| {
        Ok(Value::Bool(map(args, 0)?.get(text(args, 1)?.as_str()).is_some()))
    });
    f.add("set", &[DICT, STR, ANY], None, |call, args| {
        let own = own(map(args, 0)?)?;
        if reaches(call, arg(args, 2), own, 0)? {
            return Err("a dictionary cannot contain itself".to_owned());
        }
        call.spend(64)?;
        own.insert(text(args, 1)?.clone(), arg(args, 2).clone());
        Ok(arg(args, 0).clone())
    });
    f.add("unset", &[DICT, STR], None, |_, args| {
        own(map(args, 0)?)?.remove(text(args, 1)?.as_str());
        Ok(arg(args, 0).clone())
    });
    f.add("pluck", &[STR], Some(DICT), |_, args| {
        let key = text(args, 0)?;
        let maps = args.iter().skip(1).filter_map(as_map);
        Ok(Value::list(maps.filter_map(|m| m.get(key.as_str())).collect()))
    });
    f.add("keys", &[], Some(DICT), |_, args| {
        let keys = args.iter().filter_map(as_map).flat_map(|m| m.entries().into_iter().map(|(key, _)| key));
        Ok(Value::strings(keys.collect::<Vec<_>>()))
    });
    f.add("values", &[DICT], None, |_, args| {
        Ok(Value::list(map(args, 0)?.entries().into_iter().map(|(_, value)| value).collect()))
    });
    f.add("pick", &[DICT], Some(STR), |_, args| selected(args, true));
    f.add("omit", &[DICT], Some(STR), |_, args| selected(args, false));
}

pub(crate) const fn as_map<'v, 'a>(value: &'v Value<'a>) -> Option<&'v Map<'a>> {
    match value {
        Value::Map(map) => Some(map),
        _ => None,
    }
}

pub(crate) fn map<'v, 'a>(args: &'v [Value<'a>], index: usize) -> Result<&'v Map<'a>, String> {
    as_map(arg(args, index)).ok_or_else(|| "expected a map".to_owned())
}

/// The map itself when the template made it.
pub(crate) fn own<'v, 'a>(map: &'v Map<'a>) -> Result<&'v Rc<OwnMap<'a>>, String> {
    map.own().ok_or_else(|| {
        if map.is_nil() {
            "assignment to entry in nil map".to_owned()
        } else {
            "this map is shared input and cannot be changed: copy it first, with deepCopy".to_owned()
        }
    })
}

/// Whether `target` is `value` or inside it.
pub(crate) fn reaches<'a>(
    call: &mut Call<'_>,
    value: &Value<'a>,
    target: &Rc<OwnMap<'a>>,
    depth: usize,
) -> Result<bool, String> {
    call.nest(depth)?;
    match value {
        Value::Map(Map::Own(own)) if Rc::ptr_eq(own, target) => Ok(true),
        Value::Map(map @ Map::Own(_)) => {
            for (_, value) in map.entries() {
                if reaches(call, &value, target, depth + 1)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::List(list) if !matches!(list, List::Json { .. }) => {
            for item in list.to_vec() {
                if reaches(call, &item, target, depth + 1)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        _ => Ok(false),
    }
}

fn selected<'a>(args: &[Value<'a>], wanted: bool) -> ValueResult<'a> {
    let names: Vec<&str> = args.iter().skip(1).filter_map(Value::as_str).map(Str::as_str).collect();
    let kept = map(args, 0)?.entries().into_iter().filter(|(key, _)| names.contains(&key.as_str()) == wanted);
    Ok(Value::dict(kept.collect()))
}
