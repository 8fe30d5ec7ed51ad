//! The terminal that the program was started at.

use crate::sys;

/// Prints the rows and columns of the terminal on standard input.
pub fn size() {
    let mut size = [0_u16; 4];
    // SAFETY: TIOCGWINSZ writes four 16-bit numbers to where it is told, and there are four.
    let asked = crate::check(unsafe { sys::ioctl(0, sys::TIOCGWINSZ, size.as_mut_ptr()) });
    match asked {
        Ok(_) => println!("window {} {}", size[0], size[1]),
        Err(_) => crate::report("window", asked),
    }
}
