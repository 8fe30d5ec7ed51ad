//! Functions that write the content of a new file, so that it need not be in memory.

use std::fmt;
use std::fs::File;
use std::io;

/// A function that writes the whole content of a new file, from the first byte. After an error nothing has changed.
pub type Filling<'f> = &'f mut dyn FnMut(&mut File) -> io::Result<()>;

/// A [`Filling`] that is kept until its file is made.
pub struct Fill(Box<WritesFile>);

type WritesFile = dyn FnMut(&mut File) -> io::Result<()>;

impl Fill {
    pub fn new(fill: impl FnMut(&mut File) -> io::Result<()> + 'static) -> Self {
        Self(Box::new(fill))
    }

    pub fn filling(&mut self) -> Filling<'_> {
        &mut *self.0
    }
}

impl fmt::Debug for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fill")
    }
}
