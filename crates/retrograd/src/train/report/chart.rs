//! Curves as SVG: one panel for the losses, one for every other figure.

use crate::math;
use std::fmt::Write;

use super::{escape, number};
use crate::train::Record;

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 250.0;
pub(super) const LEFT: f64 = 58.0;
pub(super) const RIGHT: f64 = 14.0;
pub(super) const TOP: f64 = 30.0;
pub(super) const BOTTOM: f64 = 34.0;
/// Points of a line; longer ones show the least and the largest value of each piece.
const POINTS: usize = 600;

/// The colours of the page; standalone files bring their own.
const COLOURS: [&str; 6] = ["--a", "--b", "--c", "--d", "--e", "--f"];
const STANDALONE: &str = "<style>svg{--a:#2468b4;--b:#d9552b;--c:#1f8f66;--d:#8e4fb8;--e:#b58900;\
     --f:#3b8ea5;color:#23262b;background:#fbfaf8;font-family:system-ui,sans-serif}\
     @media(prefers-color-scheme:dark){svg{--a:#6aa9f0;--b:#ff8a62;--c:#4fc79a;--d:#c792ea;\
     --e:#e0b84a;--f:#7cc6db;color:#e6e4df;background:#14161a}}</style>";

struct Series<'a> {
    name: &'a str,
    points: Vec<(f64, f64)>,
}

struct Panel<'a> {
    title: &'a str,
    series: Vec<Series<'a>>,
    /// The rows that it is measured on, where it is of one figure.
    on: Option<String>,
}

/// The curves of a run for the page: a picture for each panel, which find their own rows. `of` says
/// what a figure is measured on.
pub(crate) fn page_curves(records: &[Record], of: &dyn Fn(&str) -> Option<String>) -> String {
    let mut panels = panels(records);
    for panel in panels.iter_mut().filter(|panel| panel.series.len() == 1) {
        panel.on = of(panel.series[0].name);
    }
    if panels.is_empty() {
        return "<p>No epoch was evaluated.</p>".into();
    }
    let best = best_epoch(records);
    let mut html = String::from("<div class=\"curves\">");
    for panel in &panels {
        let _ = write!(
            html,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-size=\"11\" role=\"img\" aria-label=\"{}\">",
            escape(&panel.title.replace('_', " "))
        );
        draw(&mut html, panel, best);
        html.push_str("</svg>");
    }
    html.push_str("</div>");
    html
}

fn best_epoch(records: &[Record]) -> Option<f64> {
    let best = records.iter().rev().find(|r| r.best);
    best.map(|r| r.epoch as f64)
}

/// All curves of a run in one picture that stands alone, two panels a row.
pub(crate) fn curves(records: &[Record]) -> String {
    let panels = panels(records);
    let columns = panels.len().clamp(1, 2);
    let rows = panels.len().div_ceil(columns).max(1);
    let (width, height) = (WIDTH * columns as f64, HEIGHT * rows as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-size=\"11\" role=\"img\" \
         aria-label=\"Curves of the run\">"
    );
    svg.push_str(STANDALONE);
    if panels.is_empty() {
        let _ = write!(
            svg,
            "<text x=\"20\" y=\"40\" fill=\"currentColor\">no epoch was evaluated</text>"
        );
    }
    let best = best_epoch(records);
    for (i, panel) in panels.iter().enumerate() {
        let x = WIDTH * (i % columns) as f64;
        let y = HEIGHT * (i / columns) as f64;
        let _ = write!(svg, "<g transform=\"translate({x} {y})\">");
        draw(&mut svg, panel, best);
        svg.push_str("</g>");
    }
    svg.push_str("</svg>\n");
    svg
}

fn panels(records: &[Record]) -> Vec<Panel<'_>> {
    let mut names = vec!["train_loss"];
    for (name, _) in records.iter().flat_map(|r| &r.metrics) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let series = |name| Series {
        name,
        points: records
            .iter()
            .filter_map(|r| Some((r.epoch as f64, r.get(name).filter(|v| v.is_finite())?)))
            .collect(),
    };
    let (losses, others): (Vec<_>, Vec<_>) = names
        .into_iter()
        .map(series)
        .filter(|s| !s.points.is_empty())
        .partition(|s| s.name.ends_with("loss"));
    let mut panels = Vec::new();
    if !losses.is_empty() {
        panels.push(Panel {
            title: "loss",
            series: losses,
            on: None,
        });
    }
    panels.extend(others.into_iter().map(|s| Panel {
        title: s.name,
        series: vec![s],
        on: None,
    }));
    panels
}

/// A linear or logarithmic axis.
pub(super) struct Axis {
    pub(super) low: f64,
    pub(super) high: f64,
    log: bool,
}

impl Axis {
    pub(super) fn new(values: impl Iterator<Item = f64> + Clone, may_be_log: bool) -> Self {
        let low = values.clone().fold(f64::INFINITY, math::min);
        let high = values.fold(f64::NEG_INFINITY, math::max);
        // From a factor of 20 on, the small values would lie on the axis.
        if may_be_log && low > 0.0 && high / low > 20.0 {
            return Axis {
                low: math::log10(low),
                high: math::log10(high),
                log: true,
            };
        }
        let (low, high) = if low == high && (0.0..=1.0).contains(&low) {
            // A share, most likely.
            (0.0, 1.0)
        } else if low == high {
            let margin = math::max(low.abs(), 1.0) * 0.5;
            (low - margin, high + margin)
        } else {
            (low, high)
        };
        Axis {
            low,
            high,
            log: false,
        }
    }

    pub(super) fn share(&self, value: f64) -> f64 {
        let value = if self.log { math::log10(value) } else { value };
        (value - self.low) / (self.high - self.low)
    }

    /// Values to be written at the axis.
    pub(super) fn ticks(&self, most: f64) -> Vec<f64> {
        let span = self.high - self.low;
        // Few decades: 1, 2 and 5 in each.
        if self.log && span < 2.5 {
            let decades = self.low.floor() as i32..=self.high.ceil() as i32;
            let ticks = decades.flat_map(|d| [1.0, 2.0, 5.0].map(|f| f * math::powi(10_f64, d)));
            let within = |t: &f64| (-1e-9..=1.0 + 1e-9).contains(&self.share(*t));
            return ticks.filter(within).collect();
        }
        let rough = span / most;
        let power = math::powf(10_f64, math::log10(rough).floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|f| f * power)
            .into_iter()
            .find(|&s| s >= rough)
            .unwrap_or(10.0 * power);
        let step = if self.log { math::max(step, 1.0) } else { step };
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        let ticks = (first..=last).map(|i| i as f64 * step);
        if self.log {
            ticks.map(|t| math::powf(10_f64, t)).collect()
        } else {
            ticks.collect()
        }
    }
}

fn draw(svg: &mut String, panel: &Panel, best: Option<f64>) {
    let points = || panel.series.iter().flat_map(|s| s.points.iter());
    let x_axis = Axis::new(points().map(|p| p.0), false);
    let y_axis = Axis::new(points().map(|p| p.1), true);
    let x = |v: f64| LEFT + x_axis.share(v) * (WIDTH - LEFT - RIGHT);
    let y = |v: f64| HEIGHT - BOTTOM - y_axis.share(v) * (HEIGHT - TOP - BOTTOM);
    for tick in y_axis.ticks(6.0) {
        let _ = write!(
            svg,
            "<path d=\"M{LEFT} {0:.1}H{1}\" stroke=\"currentColor\" opacity=\".13\"/>\
             <text x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\" fill=\"currentColor\" \
             opacity=\".65\">{4}</text>",
            y(tick),
            WIDTH - RIGHT,
            LEFT - 6.0,
            y(tick) + 4.0,
            tick_text(tick),
        );
    }
    for tick in x_axis.ticks(5.0).into_iter().filter(|t| t.fract() == 0.0) {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"currentColor\" \
             opacity=\".65\">{}</text>",
            x(tick),
            HEIGHT - BOTTOM + 16.0,
            tick_text(tick),
        );
    }
    let title = escape(&panel.title.replace('_', " "));
    let _ = write!(
        svg,
        "<text x=\"{LEFT}\" y=\"17\" font-size=\"13\" font-weight=\"600\" \
         fill=\"currentColor\">{title}</text>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"currentColor\" \
         opacity=\".65\">epoch</text>",
        WIDTH - RIGHT,
        HEIGHT - 4.0,
    );
    if let Some(on) = &panel.on {
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"17\" text-anchor=\"end\" fill=\"currentColor\" \
             opacity=\".65\">{}</text>",
            WIDTH - RIGHT,
            escape(on),
        );
    }
    let mut legend = WIDTH - RIGHT;
    for (i, series) in panel.series.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let mut path = String::new();
        for (n, &(px, py)) in thin(&series.points).iter().enumerate() {
            let command = if n == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", x(px), y(py));
        }
        let _ = write!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"var({colour})\" stroke-width=\"1.7\" \
             stroke-linejoin=\"round\"/>"
        );
        let marked = series
            .points
            .iter()
            .find(|p| Some(p.0) == best || series.points.len() == 1);
        if let Some(&(px, py)) = marked {
            let _ = write!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.2\" fill=\"var({colour})\">\
                 <title>epoch {px}: {}</title></circle>",
                x(px),
                y(py),
                number(py),
            );
        }
        if panel.series.len() > 1 {
            let name = escape(&series.name.replace('_', " "));
            let _ = write!(
                svg,
                "<text x=\"{legend:.0}\" y=\"17\" text-anchor=\"end\" \
                 fill=\"var({colour})\">{name}</text>"
            );
            // Some 6 units a letter at this size.
            legend -= 6.0 * series.name.len() as f64 + 12.0;
        }
    }
}

/// At most some [`POINTS`] points: the least and the largest value of each piece, in order.
fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= POINTS {
        return points.to_vec();
    }
    let mut kept = Vec::with_capacity(POINTS + 2);
    for piece in points.chunks(points.len().div_ceil(POINTS / 2)) {
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let low = piece.iter().min_by(by_value).expect("not empty");
        let high = piece.iter().max_by(by_value).expect("not empty");
        let (first, second) = if low.0 <= high.0 {
            (low, high)
        } else {
            (high, low)
        };
        kept.push(*first);
        if second.0 != first.0 {
            kept.push(*second);
        }
    }
    kept
}

pub(super) fn tick_text(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    if (1e-3..1e5).contains(&value.abs()) {
        // Rid of the noise of multiplying a step.
        let text = format!("{value:.4}");
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        format!("{value:.0e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(n: u64) -> Vec<Record> {
        (1..=n)
            .map(|epoch| Record {
                epoch,
                step: epoch,
                train_loss: 1.0 / epoch as f64,
                lr: 0.1,
                metrics: vec![
                    ("validation_loss".into(), 2.0 / epoch as f64),
                    ("accuracy".into(), 0.5),
                ],
                seconds: 0.0,
                best: epoch == n,
            })
            .collect()
    }

    #[test]
    fn losses_share_a_panel_and_long_curves_are_thinned() {
        let records = records(5000);
        let panels = panels(&records);
        let titles: Vec<_> = panels.iter().map(|p| p.title).collect();
        assert_eq!(titles, ["loss", "accuracy"]);
        assert_eq!(panels[0].series.len(), 2);
        let svg = curves(&records);
        assert!(svg.len() < 60_000, "{} bytes", svg.len());
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        for n in [0, 1, 2] {
            let svg = curves(&self::records(n));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            let html = page_curves(&self::records(n), &|_| None);
            assert_eq!(html.matches("<svg").count(), if n == 0 { 0 } else { 2 });
        }
    }

    #[test]
    fn a_wide_positive_range_gets_decades_and_a_narrow_one_round_steps() {
        let log = Axis::new([1e-4, 3.0].into_iter(), true);
        assert_eq!(
            log.ticks(4.0),
            [1e-4, 1e-2, 1.0].map(|t: f64| 10_f64.powf(t.log10().round()))
        );
        let short = Axis::new([0.04, 1.0].into_iter(), true);
        assert_eq!(short.ticks(4.0), [0.05, 0.1, 0.2, 0.5, 1.0]);
        let linear = Axis::new([0.0, 1.0].into_iter(), true);
        let ticks = linear.ticks(4.0);
        assert_eq!(ticks.len(), 3);
        assert!((ticks[1] - 0.5).abs() < 1e-12);
    }
}
