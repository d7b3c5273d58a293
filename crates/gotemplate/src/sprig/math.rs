//! Arithmetic.

use super::convert::{to_float, to_int};
use super::{ANY, INT, ValueResult, arg, int};
use crate::functions::{Call, Functions, Type};
use crate::value::Value;

/// Adds whole numbers up in some way.
type Fold = fn(i64, i64) -> i64;
type FoldFloat = fn(f64, f64) -> f64;

pub(crate) fn register(f: &mut Functions) {
    f.add("add", &[], Some(ANY), |_, args| {
        Ok(Value::int64(args.iter().fold(0, |sum, v| sum.wrapping_add(to_int(v)))))
    });
    f.add("add1", &[ANY], None, |_, args| Ok(Value::int64(to_int(arg(args, 0)).wrapping_add(1))));
    f.add("sub", &[ANY, ANY], None, |_, args| {
        Ok(Value::int64(to_int(arg(args, 0)).wrapping_sub(to_int(arg(args, 1)))))
    });
    for (name, op) in [("div", i64::checked_div as fn(i64, i64) -> Option<i64>), ("mod", i64::checked_rem)] {
        f.add(name, &[ANY, ANY], None, move |_, args| {
            let result = op(to_int(arg(args, 0)), to_int(arg(args, 1)));
            result.map(Value::int64).ok_or_else(|| "runtime error: integer divide by zero".to_owned())
        });
    }
    let folds: [(&str, Fold); 4] =
        [("mul", i64::wrapping_mul), ("max", i64::max), ("biggest", i64::max), ("min", i64::min)];
    for (name, op) in folds {
        f.add(name, &[ANY], Some(ANY), move |_, args| {
            let (first, rest) = (to_int(arg(args, 0)), args.iter().skip(1).map(to_int));
            Ok(Value::int64(rest.fold(first, op)))
        });
    }
    floats(f);
    f.add("until", &[INT], None, |call, args| {
        let stop = int(args, 0);
        steps(call, 0, stop, if stop < 0 { -1 } else { 1 }).map(ints)
    });
    f.add("untilStep", &[INT, INT, INT], None, |call, args| {
        steps(call, int(args, 0), int(args, 1), int(args, 2)).map(ints)
    });
    f.add("seq", &[], Some(INT), seq);
}

fn floats(f: &mut Functions) {
    let folds: [(&str, FoldFloat); 5] = [
        ("subf", |a, b| decimal(a - b, a, b)),
        ("divf", |a, b| a / b),
        ("mulf", |a, b| decimal(a * b, a, b)),
        ("maxf", f64::max),
        ("minf", f64::min),
    ];
    for (name, op) in folds {
        f.add(name, &[ANY], Some(ANY), move |_, args| {
            if name == "divf" && args.iter().skip(1).any(|v| to_float(v) == 0.0) {
                return Err("decimal division by 0".to_owned());
            }
            let (first, rest) = (to_float(arg(args, 0)), args.iter().skip(1).map(to_float));
            // Decimals have no negative zero.
            Ok(Value::Float(rest.fold(first, op) + 0.0))
        });
    }
    f.add("addf", &[], Some(ANY), |_, args| {
        Ok(Value::Float(args.iter().map(to_float).fold(0.0, |a, b| decimal(a + b, a, b))))
    });
    f.add("add1f", &[ANY], None, |_, args| {
        let n = to_float(arg(args, 0));
        Ok(Value::Float(decimal(n + 1.0, n, 1.0)))
    });
    f.add("floor", &[ANY], None, |_, args| Ok(Value::Float(to_float(arg(args, 0)).floor())));
    f.add("ceil", &[ANY], None, |_, args| Ok(Value::Float(to_float(arg(args, 0)).ceil())));
    f.add("round", &[ANY, INT], Some(Type::Float), |_, args| Ok(Value::Float(round(args))));
}

fn ints<'a>(numbers: Vec<i64>) -> Value<'a> {
    Value::list_of(numbers.into_iter().map(Value::int).collect(), "int")
}

/// sprig calculates in decimals: what binary fractions get wrong beyond the digits of the operands is rounded
/// away.
fn decimal(result: f64, a: f64, b: f64) -> f64 {
    let digits = |n: f64| {
        let text = format!("{n}");
        text.split_once('.').map_or(0, |(_, fraction)| fraction.len())
    };
    let places = digits(a) + digits(b);
    if places > 30 || !result.is_finite() {
        return result;
    }
    format!("{result:.places$}").parse().unwrap_or(result)
}

fn round(args: &[Value<'_>]) -> f64 {
    let on = args.get(2).map_or(0.5, to_float);
    let power = 10_f64.powi(i32::try_from(int(args, 1)).unwrap_or(i32::MAX));
    let digit = power * to_float(arg(args, 0));
    let rounded = if digit.fract() >= on { digit.ceil() } else { digit.floor() };
    rounded / power
}

fn steps(call: &mut Call<'_>, start: i64, stop: i64, step: i64) -> Result<Vec<i64>, String> {
    let goes_up = stop >= start;
    if step == 0 || goes_up != (step > 0) {
        return Ok(Vec::new());
    }
    let count = start.abs_diff(stop).div_ceil(step.unsigned_abs());
    call.spend(usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(96))?;
    let mut numbers = Vec::new();
    let mut next = Some(start);
    while let Some(n) = next.filter(|n| if goes_up { *n < stop } else { *n > stop }) {
        numbers.push(n);
        next = n.checked_add(step);
    }
    Ok(numbers)
}

fn seq<'a>(call: &mut Call<'_>, args: &[Value<'a>]) -> ValueResult<'a> {
    let numbers: Vec<i64> = (0..args.len()).map(|i| int(args, i)).collect();
    let (start, step, end) = match numbers.as_slice() {
        [end] => (1, if *end < 1 { -1 } else { 1 }, *end),
        [start, end] => (*start, if end < start { -1 } else { 1 }, *end),
        [start, step, end] if end < start && *step > 0 => {
            return Ok(Value::string(if *start == *end { start.to_string() } else { String::new() }));
        }
        [start, step, end] => (*start, *step, *end),
        _ => return Ok(Value::string("")),
    };
    let beyond = end.saturating_add(if end < start { -1 } else { 1 });
    let numbers = steps(call, start, beyond, step)?;
    Ok(Value::string(numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(" ")))
}
