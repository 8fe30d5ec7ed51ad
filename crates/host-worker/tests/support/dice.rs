//! A small generator of numbers and texts, the same in every run.

pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides.max(1)
    }

    pub fn content(&mut self) -> String {
        let lines = self.roll(60);
        let mut text = String::new();
        for _ in 0..lines {
            text += ["fn f() {\n", "}\n", "\n", "    x\n", "\ty\n", "    return 1;\n", "z\r\n"][self.roll(7)];
            if self.roll(3) == 0 {
                text.extend(["    unique ".to_owned(), self.roll(1_000_000).to_string(), "\n".to_owned()]);
            }
        }
        if self.roll(5) == 0 { text.trim_end().to_owned() } else { text }
    }

    /// The text with some lines changed.
    pub fn mutate(&mut self, text: &str) -> String {
        let keep = 5 + self.roll(20);
        let mut mutated = String::new();
        for line in text.split_inclusive('\n') {
            match self.roll(keep) {
                0 => mutated.extend(["changed ".to_owned(), self.roll(100).to_string(), "\n".to_owned()]),
                1 => {}
                _ => mutated += line,
            }
        }
        mutated
    }
}
