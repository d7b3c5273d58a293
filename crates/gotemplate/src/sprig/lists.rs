//! Lists.

use super::convert::{deep_equal, to_int};
use super::defaults::is_empty;
use super::{ANY, INT, ValueResult, arg, int, kind};
use crate::functions::{Call, Functions};
use crate::value::schema::Kind;
use crate::value::{List, Value};

/// A function of a list alone.
type OfList = for<'a> fn(&mut Call<'_>, &List<'a>) -> ValueResult<'a>;

pub(crate) fn register(f: &mut Functions) {
    for name in ["list", "tuple"] {
        f.add(name, &[], Some(ANY), |_, args| Ok(Value::list(args.to_vec())));
    }
    let of_list: [(&str, &str, OfList); 7] = [
        ("first", "find first", |_, list| Ok(list.get(0).unwrap_or(Value::Nil))),
        ("last", "find last", |_, list| Ok(list.to_vec().pop().unwrap_or(Value::Nil))),
        ("rest", "find rest", |_, list| Ok(Value::list(list.to_vec().into_iter().skip(1).collect()))),
        ("initial", "find initial", |_, list| {
            let count = list.len().saturating_sub(1);
            Ok(Value::list(list.to_vec().into_iter().take(count).collect()))
        }),
        ("reverse", "find reverse", |_, list| Ok(Value::list(list.to_vec().into_iter().rev().collect()))),
        ("compact", "compact", |_, list| {
            Ok(Value::list(list.to_vec().into_iter().filter(|v| !is_empty(v)).collect()))
        }),
        ("uniq", "find uniq", uniq),
    ];
    for (name, verb, body) in of_list {
        both(f, name, |f, name| {
            f.add(name, &[ANY], None, move |call, args| body(call, list(arg(args, 0), verb)?));
        });
    }
    for name in ["append", "push", "mustAppend", "mustPush"] {
        f.add(name, &[ANY, ANY], None, |_, args| {
            let mut items = list(arg(args, 0), "push")?.to_vec();
            items.push(arg(args, 1).clone());
            Ok(Value::list(items))
        });
    }
    both(f, "prepend", |f, name| {
        f.add(name, &[ANY, ANY], None, |_, args| {
            let mut items = vec![arg(args, 1).clone()];
            items.extend(list(arg(args, 0), "prepend")?.to_vec());
            Ok(Value::list(items))
        });
    });
    register_more(f);
}

/// Under its name, and under `must` and its name: errors are errors either way.
fn both(f: &mut Functions, name: &str, add: impl Fn(&mut Functions, &str)) {
    add(f, name);
    let (first, rest) = name.split_at(1);
    add(f, &format!("must{}{rest}", first.to_uppercase()));
}

fn register_more(f: &mut Functions) {
    both(f, "without", |f, name| {
        f.add(name, &[ANY], Some(ANY), |call, args| {
            let mut kept = Vec::new();
            for item in list(arg(args, 0), "find without")?.to_vec() {
                if !contains(call, args.get(1..).unwrap_or_default(), &item)? {
                    kept.push(item);
                }
            }
            Ok(Value::list(kept))
        });
    });
    both(f, "has", |f, name| {
        f.add(name, &[ANY, ANY], None, |call, args| {
            let items = match arg(args, 1) {
                Value::Nil | Value::Null => Vec::new(),
                other => list(other, "find has")?.to_vec(),
            };
            Ok(Value::Bool(contains(call, &items, arg(args, 0))?))
        });
    });
    both(f, "slice", |f, name| f.add(name, &[ANY], Some(ANY), |_, args| slice(args)));
    both(f, "chunk", |f, name| {
        f.add(name, &[INT, ANY], None, |_, args| {
            let size = usize::try_from(int(args, 0)).ok().filter(|n| *n > 0);
            let size = size.ok_or("the size of a chunk must be at least 1")?;
            let items = list(arg(args, 1), "chunk")?.to_vec();
            let chunks = items.chunks(size).map(|chunk| Value::list(chunk.to_vec()));
            Ok(Value::list_of(chunks.collect(), "[]interface {}"))
        });
    });
    f.add("concat", &[], Some(ANY), |_, args| {
        let mut items = Vec::new();
        for value in args {
            match value {
                Value::List(list) => items.extend(list.to_vec()),
                other => return Err(format!("Cannot concat type {} as list", kind(other))),
            }
        }
        // Nothing at all is Go's nil slice, null in JSON.
        let nil = List::Json { items: None, elem: &Kind::Any, origin: None };
        Ok(if items.is_empty() { Value::List(nil) } else { Value::list(items) })
    });
}

fn list<'v, 'a>(value: &'v Value<'a>, verb: &str) -> Result<&'v List<'a>, String> {
    match value {
        Value::List(list) => Ok(list),
        Value::Nil | Value::Null => Err(format!("Cannot {verb} on nil")),
        other => Err(format!("Cannot {verb} on type {}", kind(other))),
    }
}

fn contains<'a>(call: &mut Call<'_>, items: &[Value<'a>], wanted: &Value<'a>) -> Result<bool, String> {
    for item in items {
        if deep_equal(call, wanted, item, 0)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn uniq<'a>(call: &mut Call<'_>, list: &List<'a>) -> ValueResult<'a> {
    let mut kept: Vec<Value<'a>> = Vec::new();
    for item in list.to_vec() {
        if !contains(call, &kept, &item)? {
            kept.push(item);
        }
    }
    Ok(Value::list(kept))
}

fn slice<'a>(args: &[Value<'a>]) -> ValueResult<'a> {
    let Value::List(list) = arg(args, 0) else {
        return Err(format!("list should be type of slice or array but {}", kind(arg(args, 0))));
    };
    if list.is_empty() {
        return Ok(Value::Nil);
    }
    let bound = |index: usize, default: usize| match args.get(index) {
        Some(value) => usize::try_from(to_int(value)).unwrap_or(usize::MAX),
        None => default,
    };
    let (start, end) = (bound(1, 0), bound(2, list.len()));
    if start > end || end > list.len() {
        return Err(format!("slice bounds out of range [{start}:{end}] with length {}", list.len()));
    }
    Ok(Value::List(list.slice(start, end)))
}
