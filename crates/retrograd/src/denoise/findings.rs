//! What a denoiser's run says about the image that it shows.

use crate::Result;
use crate::data::frc::RingCorrelation;
use crate::data::image::{Image, ImageFile};
use crate::data::quality::{compare, correlation};
use crate::train::{Content, Figure};

/// What is measured on the shown image: figures for the summary, and rows of the report's table.
#[derive(Default)]
pub(super) struct Measured {
    pub figures: Vec<(String, f64)>,
    pub rows: Vec<Vec<String>>,
}

impl Measured {
    fn put(&mut self, name: String, value: f64) {
        // JSON has no infinity.
        if value.is_finite() {
            self.figures.push((name, value));
        }
    }

    /// Beside the clean image.
    pub fn beside(&mut self, clean: &Image, noisy: &Image, denoised: &Image) -> Result<()> {
        let in_memory =
            |name: &str, image: &Image| ImageFile::from_images(name, vec![image.clone()]);
        let reference = in_memory("clean", clean)?;
        for (name, image) in [("before", noisy), ("after", denoised)] {
            let image = in_memory(name, image)?;
            let quality = compare((&image, 0), (&reference, 0), None)?;
            self.put(format!("psnr_{name}"), quality.psnr);
            self.put(format!("ssim_{name}"), quality.ssim.unwrap_or(f64::NAN));
            self.put(format!("rmse_{name}"), quality.rmse);
            self.put(format!("r2_{name}"), quality.r2);
            self.rows.push(vec![
                name.to_string(),
                format!("{:.2}", quality.psnr),
                quality.ssim.map_or("–".to_string(), |s| format!("{s:.4}")),
                format!("{:.4}", quality.correlation),
                crate::train::number(quality.rmse),
                format!("{:.4}", quality.r2),
            ]);
        }
        Ok(())
    }

    /// Between the odd and the even half, before and after.
    pub fn between(
        &mut self,
        noisy: [&Image; 2],
        denoised: [&Image; 2],
    ) -> Result<[RingCorrelation; 2]> {
        let [before, after] =
            [noisy, denoised].map(|[odd, even]| correlation(&odd.pixels, &even.pixels));
        self.put("odd_even_correlation_before".to_string(), before);
        self.put("odd_even_correlation_after".to_string(), after);
        let rings = [
            RingCorrelation::of(noisy[0], noisy[1])?,
            RingCorrelation::of(denoised[0], denoised[1])?,
        ];
        for (name, rings) in ["before", "after"].iter().zip(&rings) {
            for threshold in [0.5, 0.143] {
                // Nowhere below: as fine as pixels are.
                let pixels = rings.crossing(threshold).unwrap_or(2.0);
                self.put(format!("frc_{threshold}_pixels_{name}"), pixels);
            }
        }
        for (name, value) in [("odd/even, before", before), ("odd/even, after", after)] {
            let dash = "–".to_string();
            self.rows.push(vec![
                name.to_string(),
                dash.clone(),
                dash.clone(),
                format!("{value:.4}"),
                dash.clone(),
                dash,
            ]);
        }
        Ok(rings)
    }
}

/// The ring correlation of two halves, before and after, as curves over the frequency.
pub(super) fn ring_figure(rings: &[RingCorrelation; 2]) -> Figure {
    const WIDTH: f64 = 640.0;
    const HEIGHT: f64 = 280.0;
    let (left, bottom) = (44.0, HEIGHT - 36.0);
    let place = |share: f64, value: f64| {
        let x = left + share * (WIDTH - left - 12.0);
        (x, bottom - value.clamp(0.0, 1.0) * (bottom - 14.0))
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"currentColor\">"
    );
    for value in [0.0, 0.143, 0.5, 1.0] {
        let ((x0, y), (x1, _)) = (place(0.0, value), place(1.0, value));
        svg += &format!(
            "<path d=\"M{x0:.1} {y:.1}H{x1:.1}\" stroke=\"currentColor\" opacity=\"0.25\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            x0 - 6.0,
            y + 4.0
        );
    }
    let colours = ["#8a8f98", "#2f7fd6"];
    for ((rings, colour), name) in rings.iter().zip(colours).zip(["before", "after"]) {
        let count = rings.rings.len() as f64;
        let points = rings.rings.iter().enumerate().map(|(i, &value)| {
            let (x, y) = place((i + 1) as f64 / count, value);
            format!("{x:.1},{y:.1}")
        });
        let points = points.collect::<Vec<_>>().join(" ");
        svg += &format!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\">\
             <title>{name}</title></polyline>"
        );
    }
    for (i, (name, colour)) in ["before", "after"].iter().zip(colours).enumerate() {
        let x = WIDTH - 150.0 + 70.0 * i as f64;
        svg += &format!("<text x=\"{x}\" y=\"26\" fill=\"{colour}\">{name}</text>");
    }
    svg += &format!(
        "<text x=\"{left}\" y=\"{y}\">coarse</text><text x=\"{x}\" y=\"{y}\" \
         text-anchor=\"end\">2 pixels a period</text></svg>",
        x = WIDTH - 12.0,
        y = HEIGHT - 12.0
    );
    Figure {
        title: "Fourier ring correlation".to_string(),
        caption: "How much the two halves share, from coarse to fine detail, before denoising and \
                  after. One network for both halves adds its own bias to what they share."
            .to_string(),
        content: Content::Svg(svg),
    }
}
