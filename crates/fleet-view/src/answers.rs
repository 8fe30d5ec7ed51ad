//! Lists of all nodes as one list.

use std::cmp::Reverse;

use crate::fleet::Answers;

/// Items of all nodes, in one order.
pub struct Listed<T> {
    /// Name of the node of each item, and the item.
    pub items: Vec<(String, T)>,
    /// True if there are more than these.
    pub has_more: bool,
}

/// Returns a moment of the API as a value that has an order. Unknown moments come first.
pub fn moment(time: Option<&wire::Timestamp>) -> (i64, i32) {
    time.map_or((i64::MIN, 0), |time| (time.seconds, time.nanos))
}

impl<T> Listed<T> {
    /// Merges lists, of which each says if its node has more. Keeps at most `limit` items, the latest first.
    ///
    /// Items of one moment keep the order that their node gave them.
    pub fn newest_first<K: Ord>(
        answers: Answers<(Vec<T>, bool)>,
        limit: usize,
        moment: impl Fn(&T) -> K,
    ) -> Self {
        let mut all = Self::joined(answers);
        all.items.sort_by_key(|(_, item)| Reverse(moment(item)));
        all.at_most(limit)
    }

    /// Merges lists like [`Listed::newest_first`], the earliest first.
    pub fn oldest_first<K: Ord>(
        answers: Answers<(Vec<T>, bool)>,
        limit: usize,
        moment: impl Fn(&T) -> K,
    ) -> Self {
        let mut all = Self::joined(answers);
        all.items.sort_by_key(|(_, item)| moment(item));
        all.at_most(limit)
    }

    fn joined(answers: Answers<(Vec<T>, bool)>) -> Self {
        let has_more = answers.all.iter().any(|(_, (_, has_more))| *has_more);
        let of_node = |(name, (items, _)): (String, (Vec<T>, bool))| {
            items.into_iter().map(move |item| (name.clone(), item))
        };
        Self { items: answers.all.into_iter().flat_map(of_node).collect(), has_more }
    }

    fn at_most(mut self, limit: usize) -> Self {
        self.has_more |= self.items.len() > limit;
        self.items.truncate(limit);
        self
    }

    /// Returns the items without their nodes, and the nodes.
    pub fn parts(self) -> (Vec<T>, Vec<String>) {
        self.items.into_iter().map(|(node, item)| (item, node)).unzip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(has_more: bool) -> Answers<(Vec<i32>, bool)> {
        let all = vec![("1".to_owned(), (vec![5, 3], false)), ("2".to_owned(), (vec![4, 1], has_more))];
        Answers { all, missing: Vec::new() }
    }

    #[test]
    fn lists_are_one_list_with_the_node_of_each_item() {
        let newest = Listed::newest_first(answers(false), 3, |item| *item);
        assert!(newest.has_more);
        let named = |node: &str, item| (node.to_owned(), item);
        assert_eq!(newest.items, [named("1", 5), named("2", 4), named("1", 3)]);
        let all = Listed::oldest_first(answers(false), 4, |item| *item);
        assert!(!all.has_more);
        assert_eq!(all.parts(), (vec![1, 3, 4, 5], ["2", "1", "2", "1"].map(str::to_owned).into()));
        assert!(Listed::oldest_first(answers(true), 4, |item| *item).has_more);
        assert!(!Listed::newest_first(answers(false), 4, |item| *item).has_more);
    }

    #[test]
    fn items_of_one_moment_keep_the_order_of_their_node() {
        let newest = Listed::newest_first(answers(false), 4, |_| ());
        assert_eq!(newest.parts().0, [5, 3, 4, 1]);
        let oldest = Listed::oldest_first(answers(false), 4, |_| ());
        assert_eq!(oldest.parts().0, [5, 3, 4, 1]);
    }

    #[test]
    fn unknown_moments_come_first() {
        let at = |seconds, nanos| moment(Some(&wire::Timestamp { seconds, nanos }));
        assert!(moment(None) < at(0, 0) && at(0, 0) < at(0, 1) && at(0, 1) < at(1, 0));
    }
}
