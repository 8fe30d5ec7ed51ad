//! The scaling curve as a picture: calls a second over clients, a line for each number of runs, a chart for each kind of work.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::curve::Point;

const SIZE: (u32, u32) = (960, 420);
const FONT: &str = "sans-serif";
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 90, 160),
    RGBColor(210, 80, 20),
    RGBColor(0, 130, 70),
    RGBColor(150, 50, 140),
    RGBColor(90, 90, 90),
];

/// Draws it, as SVG.
pub(crate) fn draw(points: &[Point], host: &str, file: &Path) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (title, charts) = root.split_vertically(30);
    title.draw(&Text::new(host, (10, 8), (FONT, 14).into_font()))?;
    let kinds: Vec<&str> = points.iter().map(|point| point.work).fold(Vec::new(), |mut kinds, work| {
        if !kinds.contains(&work) {
            kinds.push(work);
        }
        kinds
    });
    for (area, work) in charts.split_evenly((1, kinds.len())).iter().zip(kinds) {
        let points: Vec<&Point> = points.iter().filter(|point| point.work == work).collect();
        let most = points.iter().map(|point| point.rate()).fold(1.0, f64::max);
        let crowd = points.iter().map(|point| point.clients).max().unwrap_or(1);
        let mut chart = ChartBuilder::on(area)
            .caption(work, (FONT, 16))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(60)
            .build_cartesian_2d((1..crowd).log_scale(), 0.0..most * 1.1)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc("clients")
            .y_desc("calls a second")
            .y_label_formatter(&|rate| format!("{rate:.0}"))
            .draw()?;
        let steps: BTreeSet<usize> = points.iter().map(|point| point.runs).collect();
        for (number, runs) in steps.into_iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let line = points.iter().filter(|point| point.runs == runs);
            let line: Vec<_> = line.map(|point| (point.clients, point.rate())).collect();
            chart
                .draw_series(LineSeries::new(line.iter().copied(), colour.stroke_width(2)))?
                .label(if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") })
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
            chart.draw_series(line.iter().map(|&at| Circle::new(at, 3, colour.filled())))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .label_font((FONT, 12))
            .draw()?;
    }
    root.present()?;
    Ok(())
}
