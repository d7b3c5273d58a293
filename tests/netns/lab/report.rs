//! What a report of `explain` says in short.

/// The verdict, which may go on in a second line, and the causes of the problems.
pub(crate) fn verdict(report: &str) -> String {
    let mut lines = report.lines();
    let first = lines.next().unwrap_or_default();
    let more = lines.next().and_then(|line| line.strip_prefix("  more     "));
    let mut parts = vec![more.map_or_else(
        || first.to_owned(),
        |more| format!("{} {more}", first.strip_suffix(" ...").expect("a verdict that goes on")),
    )];
    let listed = report.lines().skip_while(|line| *line != "Problems").skip(1);
    for line in listed.take_while(|line| !line.is_empty()) {
        let is_number = |number: &str| number.trim().parse::<usize>().is_ok();
        let cause = line.split_once(". ").filter(|(number, _)| is_number(number));
        parts.extend(cause.and_then(|(_, rest)| rest.split_once(": ")).map(|(_, cause)| cause.to_owned()));
    }
    parts.join("; ")
}
