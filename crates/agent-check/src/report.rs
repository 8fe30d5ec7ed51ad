//! The state of a node, as the line that HAProxy reads.

/// State of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// It makes runs. The percentage is of its scarcest resource.
    Ready { free_percent: u8 },
    /// It is drained.
    Drained,
    /// It is not ready.
    Down,
}

impl Report {
    /// Returns the report of a node that makes runs. Each amount is the maximum and the use.
    ///
    /// A maximum of `u64::MAX` is not known.
    pub fn ready(amounts: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let free = |(most, used): (u64, u64)| {
            let percent = u128::from(most.saturating_sub(used)) * 100 / u128::from(most.max(1));
            u8::try_from(percent).unwrap_or(100)
        };
        let known = amounts.into_iter().filter(|(most, _)| *most != u64::MAX);
        Self::Ready { free_percent: known.map(free).min().unwrap_or(100) }
    }

    /// Returns the line, with its end.
    pub(crate) fn line(self) -> String {
        match self {
            Self::Ready { free_percent } => format!("up ready {}%\n", free_percent.clamp(1, 100)),
            Self::Drained => "up drain\n".to_owned(),
            Self::Down => "down\n".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scarcest_resource_counts() {
        for (amounts, percent) in [
            (&[][..], 100),
            (&[(10, 0), (4, 1)], 75),
            (&[(3, 1)], 66),
            (&[(10, 10)], 0),
            (&[(10, 12), (8, 0)], 0),
            (&[(u64::MAX, 5), (2, 1)], 50),
            (&[(u64::MAX - 1, 1)], 99),
            (&[(0, 0)], 0),
        ] {
            let expected = Report::Ready { free_percent: percent };
            assert_eq!(Report::ready(amounts.iter().copied()), expected, "{amounts:?}");
        }
    }

    #[test]
    fn a_full_node_is_not_taken_out_of_service() {
        assert_eq!(Report::Ready { free_percent: 0 }.line(), "up ready 1%\n");
        assert_eq!(Report::Ready { free_percent: 42 }.line(), "up ready 42%\n");
        assert_eq!(Report::Drained.line(), "up drain\n");
        assert_eq!(Report::Down.line(), "down\n");
    }
}
