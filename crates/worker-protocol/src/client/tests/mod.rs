//! The client against a fake worker, in memory and with a clock that tests advance.

mod calls;
mod fake;
mod flow;
mod go;
mod hostile;
mod prepared;
mod provide;
mod terminals;
