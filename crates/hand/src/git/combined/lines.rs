//! The lines of the file, what each side has of them, and what the sides have instead.

use super::PARENTS;

/// Comparisons of lost lines, at most; beyond, those of both sides stand behind each other.
const COMPARISONS: usize = 4_000_000;

/// Sides, as bits: the first is 1, the second 2.
pub(super) type Sides = u8;
pub(super) const BOTH: Sides = 3;

/// A line of the file, or what follows the last one.
#[derive(Default)]
pub(super) struct Line<'c> {
    pub(super) text: &'c [u8],
    /// Sides that do not have it.
    pub(super) added_to: Sides,
    /// Lines in front of it that sides have.
    pub(super) lost: Vec<Lost>,
    /// The lines that a side has lost here, before they are joined with those of the other.
    fresh: Vec<Lost>,
    /// The number of the next line in each side.
    pub(super) numbers: [usize; PARENTS],
    /// It is shown.
    pub(super) is_marked: bool,
    /// It is context, and what is lost in front of it is not shown.
    pub(super) hides_lost: bool,
}

/// A line that is not in the file.
#[derive(Clone)]
pub(super) struct Lost {
    pub(super) text: Vec<u8>,
    /// Sides that have it.
    pub(super) of: Sides,
}

/// All of the file's lines, one for its end, and one for the numbers behind that.
pub(super) struct Lines<'c> {
    pub(super) all: Vec<Line<'c>>,
    /// Lines of the file.
    pub(super) count: usize,
}

impl<'c> Lines<'c> {
    pub(super) fn of(content: &'c [u8]) -> Self {
        let line =
            |text: &'c [u8]| Line { text: text.strip_suffix(b"\n").unwrap_or(text), ..Line::default() };
        let mut all: Vec<_> = content.split_inclusive(|byte| *byte == b'\n').map(line).collect();
        let count = all.len();
        all.extend([Line::default(), Line::default()]);
        Self { all, count }
    }

    /// Side `number` has a line in front of line `place` that the file has not.
    pub(super) fn lose(&mut self, place: usize, number: usize, text: &[u8]) {
        let text = text.strip_suffix(b"\n").unwrap_or(text).to_vec();
        if let Some(line) = self.all.get_mut(place) {
            line.fresh.push(Lost { text, of: 1 << number });
        }
    }

    /// Side `number` does not have line `place`.
    pub(super) fn add(&mut self, place: usize, number: usize) {
        if let Some(line) = self.all.get_mut(place) {
            line.added_to |= 1 << number;
        }
    }

    /// Everything about side `number` is known: numbers its lines.
    pub(super) fn number(&mut self, number: usize) {
        let mut next = 1;
        let count = self.count;
        for (place, line) in self.all.iter_mut().enumerate() {
            line.numbers[number] = next;
            if place > count {
                break;
            }
            let fresh = std::mem::take(&mut line.fresh);
            line.lost = joined(std::mem::take(&mut line.lost), fresh, number);
            next += line.lost.iter().filter(|lost| lost.of & 1 << number != 0).count();
            if place < count && line.added_to & 1 << number == 0 {
                next += 1;
            }
        }
    }

    /// Side `number` has what the first side has.
    pub(super) fn same_as_first(&mut self, number: usize) {
        for line in &mut self.all {
            line.numbers[number] = line.numbers[0];
            for lost in line.lost.iter_mut().filter(|lost| lost.of & 1 != 0) {
                lost.of |= 1 << number;
            }
            if line.added_to & 1 != 0 {
                line.added_to |= 1 << number;
            }
        }
    }
}

/// One list of both, in which lines that both have stand once.
fn joined(base: Vec<Lost>, new: Vec<Lost>, number: usize) -> Vec<Lost> {
    if base.is_empty() || new.is_empty() {
        return if base.is_empty() { new } else { base };
    }
    if base.len().saturating_mul(new.len()) > COMPARISONS {
        return base.into_iter().chain(new).collect();
    }
    let width = new.len() + 1;
    let mut common = vec![0_u32; (base.len() + 1) * width];
    let at = |row: usize, column: usize| row * width + column;
    for row in 1..=base.len() {
        for column in 1..=new.len() {
            common[at(row, column)] = if base[row - 1].text == new[column - 1].text {
                common[at(row - 1, column - 1)] + 1
            } else {
                common[at(row, column - 1)].max(common[at(row - 1, column)])
            };
        }
    }
    let (mut row, mut column) = (base.len(), new.len());
    let mut joined = Vec::with_capacity(row + column);
    while row > 0 || column > 0 {
        if row > 0 && column > 0 && base[row - 1].text == new[column - 1].text {
            let mut both = base[row - 1].clone();
            both.of |= 1 << number;
            joined.push(both);
            row -= 1;
            column -= 1;
        } else if row == 0 || (column > 0 && common[at(row, column - 1)] >= common[at(row - 1, column)]) {
            joined.push(new[column - 1].clone());
            column -= 1;
        } else {
            joined.push(base[row - 1].clone());
            row -= 1;
        }
    }
    joined.reverse();
    joined
}
