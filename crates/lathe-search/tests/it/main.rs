//! Integration tests of proxies, of LTS's search and of differentiable searches.

mod contract;
mod differentiable;
mod evolution;
mod proxies;
