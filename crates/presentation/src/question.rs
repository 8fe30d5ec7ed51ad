//! Questions at the terminal. No command asks without one.

use std::io::{self, BufRead as _, IsTerminal as _};

use crate::output::Output;
use crate::ui::Ui;

/// Returns true if a person reads the questions and can answer.
pub fn can_ask(ui: Ui) -> bool {
    !ui.is_data_only() && ui.is_terminal() && io::stdin().is_terminal()
}

/// Prints a question, and returns true if the answer is a yes. An end of input is a no, like every other answer.
pub fn ask(ui: Ui, question: &Output) -> io::Result<bool> {
    ui.say(question);
    let mut answer = String::new();
    let is_ended = io::stdin().lock().read_line(&mut answer)? == 0;
    if is_ended {
        ui.end_line();
    }
    Ok(is_yes(&answer))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::is_yes;

    #[test]
    fn only_yes_is_a_yes() {
        for (answer, expected) in
            [("y\n", true), ("YES\n", true), ("\n", false), ("", false), ("n\n", false), ("yep\n", false)]
        {
            assert_eq!(is_yes(answer), expected, "{answer:?}");
        }
    }
}
