//! The crate as its callers see it: the grammar, and real directories with somebody hostile in them.

#[cfg(test)]
mod grammar;
mod leftovers;
#[cfg(test)]
mod links;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod outside;
#[cfg(test)]
mod races;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod removing;
#[cfg(test)]
mod replacing;
#[cfg(test)]
mod support;
#[cfg(test)]
mod writing;
