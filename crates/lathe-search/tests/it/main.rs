//! Integration tests of proxies.

mod proxies;
