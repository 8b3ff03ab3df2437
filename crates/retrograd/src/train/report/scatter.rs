//! Points in a plane: what is predicted against what is true, and what is left between them.

use std::fmt::Write;

use super::chart::{Axis, BOTTOM, LEFT, RIGHT, TOP, tick_text};
use super::escape;
use crate::math;

const SIDE: f64 = 380.0;
/// More points would hide one another, and weigh.
const MAX: usize = 2000;

/// Points in a plane with equal axes, and the line on which both are equal.
pub(crate) fn scatter(points: &[(f64, f64)], across: &str, upwards: &str) -> String {
    let points = few(points);
    let axis = Axis::new(points.iter().flat_map(|p| [p.0, p.1]), false);
    let ends = [(axis.low, axis.low), (axis.high, axis.high)];
    drawn(&points, [across, upwards], [&axis, &axis], ends)
}

/// Points whose second number would best be 0, which is the line.
pub(crate) fn scatter_around_zero(points: &[(f64, f64)], across: &str, upwards: &str) -> String {
    let points = few(points);
    let x = Axis::new(points.iter().map(|p| p.0), false);
    // As far above 0 as below: a tendency is seen.
    let far = points.iter().map(|p| p.1.abs()).fold(0.0, math::max);
    let y = Axis::new([-far, far].into_iter(), false);
    let ends = [(x.low, 0.0), (x.high, 0.0)];
    drawn(&points, [across, upwards], [&x, &y], ends)
}

/// Those that can be drawn, and no more than can be told apart.
fn few(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let stride = points.len().div_ceil(MAX).max(1);
    let points = points.iter().step_by(stride).copied();
    points
        .filter(|p| p.0.is_finite() && p.1.is_finite())
        .collect()
}

fn drawn(
    points: &[(f64, f64)],
    [across, upwards]: [&str; 2],
    [x_axis, y_axis]: [&Axis; 2],
    ends: [(f64, f64); 2],
) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {SIDE} {SIDE}\" \
         width=\"{SIDE}\" height=\"{SIDE}\" font-size=\"11\" role=\"img\" \
         aria-label=\"{upwards} against {across}\">"
    );
    if !points.is_empty() {
        let x = |v: f64| LEFT + x_axis.share(v) * (SIDE - LEFT - RIGHT);
        let y = |v: f64| SIDE - BOTTOM - y_axis.share(v) * (SIDE - TOP - BOTTOM);
        for tick in y_axis.ticks(5.0) {
            let _ = write!(
                svg,
                "<path d=\"M{LEFT} {0:.1}H{1}\" stroke=\"currentColor\" opacity=\".1\"/>\
                 <text x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\" fill=\"currentColor\" \
                 opacity=\".65\">{4}</text>",
                y(tick),
                SIDE - RIGHT,
                LEFT - 6.0,
                y(tick) + 4.0,
                tick_text(tick),
            );
        }
        for tick in x_axis.ticks(5.0) {
            let _ = write!(
                svg,
                "<path d=\"M{0:.1} {TOP}V{1}\" stroke=\"currentColor\" opacity=\".1\"/>\
                 <text x=\"{0:.1}\" y=\"{2}\" text-anchor=\"middle\" fill=\"currentColor\" \
                 opacity=\".65\">{3}</text>",
                x(tick),
                SIDE - BOTTOM,
                SIDE - BOTTOM + 16.0,
                tick_text(tick),
            );
        }
        let [from, to] = ends;
        let _ = write!(
            svg,
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"currentColor\" opacity=\".4\"/>",
            x(from.0),
            y(from.1),
            x(to.0),
            y(to.1),
        );
        for &(px, py) in points {
            let _ = write!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2\" fill=\"var(--a)\" \
                 opacity=\".55\"/>",
                x(px),
                y(py),
            );
        }
    }
    let _ = write!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"currentColor\" \
         opacity=\".65\">{}</text><text x=\"{LEFT}\" y=\"17\" fill=\"currentColor\" \
         opacity=\".65\">{}</text></svg>",
        SIDE - RIGHT,
        SIDE - 4.0,
        escape(across),
        escape(upwards),
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residuals_lie_around_a_line_at_zero_in_the_middle() {
        let points = [(0.0, 0.5), (1.0, -0.25), (2.0, 0.0), (3.0, f64::NAN)];
        let svg = scatter_around_zero(&points, "predicted", "true minus predicted");
        let middle = format!("{:.1}", (SIDE - BOTTOM + TOP) / 2.0);
        assert!(svg.contains(&format!("M{LEFT:.1} {middle}L")), "{svg}");
        assert!(svg.contains(&format!("cy=\"{middle}\"")), "{svg}");
        // What is no number is not drawn, and nothing is where nothing is.
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(!scatter_around_zero(&[], "a", "b").contains("<path"));
        // Predictions that are all right: no axis without a length.
        assert!(!scatter_around_zero(&[(1.0, 0.0)], "a", "b").contains("NaN"));
    }
}
