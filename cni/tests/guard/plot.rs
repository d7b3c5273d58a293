//! Repair times as a picture.

use std::fmt::Write as _;
use std::time::Duration;

use crate::soak::Kind;

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 560.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 340.0;
/// Dark on a white ground of its own: readable on a dark page too.
const TEXT: &str = "#1f2328";
const GRID: &str = "#d0d7de";
const TITLE: &str = "From the notice of a change to its repair";
/// Where the axis of milliseconds has marks; it begins and ends with the first and the last.
const MARKS: [f64; 13] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];
const FIRST: f64 = 0.1;
const DECADES: f64 = 4.0;

fn x(milliseconds: f64) -> f64 {
    let decades = (milliseconds / FIRST).log10().clamp(0.0, DECADES);
    LEFT + decades / DECADES * (RIGHT - LEFT)
}

fn y(share: f64) -> f64 {
    BOTTOM - share * (BOTTOM - TOP)
}

const fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Added => "#0a5fd6",
        Kind::Deleted => "#b35900",
        Kind::Iptables => "#8250df",
    }
}

/// Milliseconds to the right, logarithmic; the share of repairs that were done by then upward.
pub(crate) fn svg(lines: &[(Kind, &[Duration])]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\" \
         fill=\"{TEXT}\" role=\"img\">\n<title>{TITLE}</title>\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"28\" font-size=\"16\" font-weight=\"bold\">{TITLE}</text>\n"
    );
    for mark in MARKS {
        let (at, below) = (x(mark), BOTTOM + 20.0);
        let _ = writeln!(
            svg,
            "<path d=\"M{at:.1} {TOP}V{BOTTOM}\" stroke=\"{GRID}\"/><text x=\"{at:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{mark}</text>"
        );
    }
    for percent in [0_u8, 25, 50, 75, 100] {
        let (at, left) = (y(f64::from(percent) / 100.0), LEFT - 8.0);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{RIGHT}\" stroke=\"{GRID}\"/><text x=\"{left:.1}\" y=\"{:.1}\" text-anchor=\"end\">{percent} %</text>",
            at + 4.5
        );
    }
    let (middle, below) = (f64::midpoint(LEFT, RIGHT), HEIGHT - 16.0);
    let _ = writeln!(
        svg,
        "<text x=\"{middle:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">milliseconds (logarithmic)</text>"
    );
    for (at, (kind, times)) in (0_u32..).zip(lines) {
        line(&mut svg, *kind, times, TOP + 12.0 + 24.0 * f64::from(at));
    }
    svg + "</svg>\n"
}

/// A line, at most a hundred points of it, and its name in the legend. `times` are in order.
fn line(svg: &mut String, kind: Kind, times: &[Duration], legend: f64) {
    let percentile =
        |percent: usize| times.get((times.len() * percent / 100).min(times.len().saturating_sub(1)));
    let points = (0..=100_u8).filter_map(|percent| {
        let time = percentile(usize::from(percent))?.as_secs_f64() * 1000.0;
        Some(format!("{:.1},{:.1}", x(time), y(f64::from(percent) / 100.0)))
    });
    let points: Vec<_> = points.collect();
    let stroke = format!("fill=\"none\" stroke=\"{}\" stroke-width=\"2\"", colour(kind));
    let (start, text, baseline) = (RIGHT + 24.0, RIGHT + 68.0, legend + 4.5);
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" {stroke}/>\n<path d=\"M{start:.1} {legend:.1}h36\" {stroke}/>\
         <text x=\"{text:.1}\" y=\"{baseline:.1}\">{}</text>",
        points.join(" "),
        kind.name()
    );
}
