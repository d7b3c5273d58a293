//! Costs of connections as a picture.

use std::fmt::Write as _;

use super::table::case;
use super::{Backend, Case, LENGTHS, List};

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 80.0;
const BOTTOM: f64 = 380.0;
const TOP: f64 = 50.0;
const RIGHT: f64 = 590.0;
/// Dark on a white ground of its own: readable on a dark page too.
const TEXT: &str = "#1f2328";
const GRID: &str = "#d0d7de";
const TITLE: &str = "Cost of a new captured connection by length of the exclusion list";
/// Where the axis of microseconds may begin, end and have marks.
const MARKS: [u32; 13] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];

/// The microseconds that the plot shows.
#[derive(Clone, Copy, Debug)]
struct Scale {
    low: u32,
    high: u32,
}

impl Scale {
    fn of(costs: impl Iterator<Item = f64> + Clone) -> Self {
        let (least, most) = (costs.clone().fold(f64::MAX, f64::min), costs.fold(0.0, f64::max));
        let low = MARKS.into_iter().rev().find(|mark| f64::from(*mark) <= least).unwrap_or(1);
        let high = MARKS.into_iter().find(|mark| f64::from(*mark) >= most).unwrap_or(10_000);
        Self { low, high }
    }

    /// Height of a cost, logarithmic.
    fn y(self, cost: f64) -> f64 {
        let decades = |to: f64| (to / f64::from(self.low)).log10();
        BOTTOM - decades(cost) / decades(f64::from(self.high)) * (BOTTOM - TOP)
    }

    fn marks(self) -> impl Iterator<Item = u32> {
        MARKS.into_iter().filter(move |mark| (self.low..=self.high).contains(mark))
    }
}

/// Length of the list from left to right, microseconds per connection upward; both logarithmic, with a place
/// of its own for no list. Colours are backends, dashes are lists.
pub(crate) fn svg(cases: &[Case]) -> String {
    let mut lines = Vec::new();
    for backend in Backend::WITH_RULES {
        lines.push((backend, List::Ranges, costs(cases, backend, List::Ranges)));
        lines.push((backend, List::Ports, costs(cases, backend, List::Ports)));
    }
    lines.push((Backend::NoRules, List::Ranges, costs(cases, Backend::NoRules, List::Ranges)));
    let scale = Scale::of(lines.iter().flat_map(|(_, _, costs)| costs.iter().copied()));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\" \
         fill=\"{TEXT}\" role=\"img\">\n<title>{TITLE}</title>\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"28\" font-size=\"16\" font-weight=\"bold\">{TITLE}</text>\n"
    );
    axes(&mut svg, scale);
    for (at, (backend, list, costs)) in (0_u32..).zip(&lines) {
        line(&mut svg, *backend, *list, TOP + 12.0 + 24.0 * f64::from(at), costs, scale);
    }
    svg + "</svg>\n"
}

/// Microseconds at each of [`LENGTHS`].
fn costs(cases: &[Case], backend: Backend, list: List) -> Vec<f64> {
    // Where there are no rules there is no list.
    let at = |length: u32| if backend == Backend::NoRules { 0 } else { length };
    LENGTHS
        .iter()
        .filter_map(|length| case(cases, backend, list, at(*length)))
        .map(|case| case.microseconds().median)
        .collect()
}

/// Where the nth of [`LENGTHS`] is.
fn x(index: u32) -> f64 {
    LEFT + f64::from(index) / (LENGTHS.len() as f64 - 1.0) * (RIGHT - LEFT)
}

fn axes(svg: &mut String, scale: Scale) {
    for (index, length) in (0..).zip(["none", "100", "1,000", "10,000"]) {
        let at = x(index);
        let _ = writeln!(
            svg,
            "<path d=\"M{at:.1} {TOP}V{BOTTOM}\" stroke=\"{GRID}\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{length}</text>",
            BOTTOM + 20.0
        );
    }
    for mark in scale.marks() {
        let at = scale.y(f64::from(mark));
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{RIGHT}\" stroke=\"{GRID}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{mark}</text>",
            LEFT - 8.0,
            at + 4.5
        );
    }
    let (middle, centre) = (f64::midpoint(LEFT, RIGHT), f64::midpoint(TOP, BOTTOM));
    let _ = writeln!(
        svg,
        "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">excluded CIDRs or ports, none of which matches</text>\n\
         <text transform=\"translate(26 {centre:.1}) rotate(-90)\" text-anchor=\"middle\">µs per connection (logarithmic)</text>",
        HEIGHT - 16.0
    );
}

/// A line with a mark at each point, and its name in the legend.
fn line(svg: &mut String, backend: Backend, list: List, legend: f64, costs: &[f64], scale: Scale) {
    let colour = match backend {
        Backend::Iptables(0) => "#b35900",
        Backend::Iptables(_) => "#8250df",
        Backend::Nftables => "#0a5fd6",
        Backend::NoRules => "#57606a",
    };
    let (dashes, what) = match (backend, list) {
        (Backend::NoRules, _) => ("2 5", ""),
        (_, List::Ranges) => ("none", ", CIDRs"),
        (_, List::Ports) => ("9 5", ", ports"),
    };
    let points: Vec<(f64, f64)> = (0..).map(x).zip(costs.iter().map(|cost| scale.y(*cost))).collect();
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let stroke =
        format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"");
    let _ = writeln!(svg, "<polyline points=\"{}\" {stroke}/>", path.join(" "));
    if backend != Backend::NoRules {
        for (x, y) in points {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>");
        }
    }
    let start = RIGHT + 14.0;
    let _ = writeln!(
        svg,
        "<path d=\"M{start:.1} {legend:.1}h36\" {stroke}/><text x=\"{:.1}\" y=\"{:.1}\">{}{what}</text>",
        start + 44.0,
        legend + 4.5,
        backend.name()
    );
}
