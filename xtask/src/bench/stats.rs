//! What many samples amount to: median, the middle half, the tail. Pure.

/// Samples of one thing, in one unit.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Samples(pub Vec<f64>);

/// What is reported of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    /// How many.
    pub count: usize,
    /// Half lie below.
    pub median: f64,
    /// A quarter lies below.
    pub low: f64,
    /// A quarter lies above.
    pub high: f64,
    /// One in a hundred lies above.
    pub p99: f64,
}

impl Samples {
    /// The summary; `None` of nothing.
    pub(crate) fn summary(&self) -> Option<Summary> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        Some(Summary {
            count: sorted.len(),
            median: quantile(&sorted, 0.5)?,
            low: quantile(&sorted, 0.25)?,
            high: quantile(&sorted, 0.75)?,
            p99: quantile(&sorted, 0.99)?,
        })
    }
}

/// The value below which that share of sorted values lies, interpolated.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = last as f64 * share;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_summary() {
        assert_eq!(Samples::default().summary(), None);
    }

    #[test]
    fn quantiles_are_interpolated_and_order_does_not_matter() {
        let summary = Samples(vec![4.0, 1.0, 3.0, 2.0]).summary().unwrap();
        assert_eq!((summary.count, summary.low, summary.median, summary.high), (4, 1.75, 2.5, 3.25));
    }

    #[test]
    fn one_sample_is_every_quantile() {
        let summary = Samples(vec![5.0]).summary().unwrap();
        assert_eq!((summary.low, summary.median, summary.high, summary.p99), (5.0, 5.0, 5.0, 5.0));
    }
}
