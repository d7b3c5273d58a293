//! The latencies as a picture: how long the slowest parts of the requests take.

use std::fmt::Write as _;

use crate::load::LoadResult;

const WIDTH: f64 = 780.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 60.0;
const BOTTOM: f64 = 50.0;
const TOP: f64 = 20.0;
const RIGHT: f64 = 200.0;
/// Where the axis has marks: percentile, and its place in nines.
const MARKS: [f64; 6] = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99];
const COLOURS: [&str; 6] = ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#9c6b4e"];

/// Percentiles from left to right, each nine as wide as the one before; milliseconds upward, logarithmic.
pub(crate) fn latencies(curves: &[(String, LoadResult)]) -> String {
    let ms =
        |result: &LoadResult, percent: f64| (result.percentile(percent).as_secs_f64() * 1000.0).max(0.01);
    let most = curves.iter().map(|(_, result)| ms(result, 99.99)).fold(1.0, f64::max);
    let least = curves.iter().map(|(_, result)| ms(result, 0.0)).fold(1.0, f64::min);
    let (low, high) = (least.log10().floor(), most.log10().ceil());
    let x = |percent: f64| LEFT + nines(percent) / nines(99.99) * (WIDTH - LEFT - RIGHT);
    let y = |ms: f64| HEIGHT - BOTTOM - (ms.log10() - low) / (high - low) * (HEIGHT - BOTTOM - TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for percent in MARKS {
        let at = x(percent);
        let _ = writeln!(
            svg,
            "<path d=\"M{at:.1} {TOP}V{:.1}\" stroke=\"#ddd\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{percent}%</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 18.0
        );
    }
    let mut power = low;
    while power <= high {
        let (ms, at) = (10_f64.powf(power), y(10_f64.powf(power)));
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ms} ms</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0
        );
        power += 1.0;
    }
    for (at, ((name, result), colour)) in (0_u32..).zip(curves.iter().zip(COLOURS)) {
        let points = (0..=200).map(|step| 100.0 - 100.0 * 10_f64.powf(-4.0 * f64::from(step) / 200.0));
        let path: String =
            points.map(|percent| format!("{:.1},{:.1} ", x(percent), y(ms(result, percent)))).collect();
        let legend = TOP + 12.0 + 18.0 * f64::from(at);
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>\
             <text x=\"{:.1}\" y=\"{legend:.1}\" fill=\"{colour}\">{name}</text>",
            path.trim_end(),
            WIDTH - RIGHT + 8.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">share of the requests that took no longer (500 a second)</text>\n</svg>",
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - 10.0
    );
    svg
}

fn nines(percent: f64) -> f64 {
    -(1.0 - percent / 100.0).log10()
}
