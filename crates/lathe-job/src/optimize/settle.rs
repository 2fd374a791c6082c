//! The model that was asked for, measured as it is given. Where it takes longer than asked for, since other work came or went
//! while models were chosen, it is stored in fewer bits.

use super::decide::{CLOSE, DECIDED, Decided, TIGHTER};
use super::job::Job;
use super::menu::Menu;
use crate::input::write_json;
use crate::{Error, Event, Result, Watch};

impl Job<'_> {
    /// Makes the asked-for model meet its latency by bits, as far as these go.
    pub(super) fn settle(&self, menu: &Menu, decided: &mut Decided, watch: Watch<'_>) -> Result<()> {
        let Some(target) = decided.target.filter(|_| self.plan.asked.max_loss.is_none()) else { return Ok(()) };
        let bytes = self.most_bytes();
        for _ in 0..TIGHTER {
            let point = &decided.points[0];
            let folder = self.finish(menu, point, watch)?;
            let pair = self.measured(&point.name, &folder)?.pair;
            let share = pair.second_ms.median / pair.first_ms.median;
            if share <= target {
                break;
            }
            let own = &point.candidate.architecture;
            let Some(fewer) = menu.fewer_bits(own, CLOSE.min(target / share), bytes) else { break };
            watch(Event::Message(format!(
                "{} takes {share:.3} of the original's latency, and not {target:.3}: it is stored in fewer bits",
                point.name
            )));
            // Gone before it is decided: whoever is killed in between makes it again, and comes here again.
            std::fs::remove_dir_all(&folder).map_err(Error::io(&folder))?;
            let candidate = &mut decided.points[0].candidate;
            candidate.lost_by_storage = menu.lost_by_storage(&fewer);
            candidate.estimated = menu.estimate_us(&fewer) / 1e3 / decided.original_ms;
            candidate.architecture = fewer;
            write_json(&self.path(DECIDED), decided)?;
        }
        Ok(())
    }
}
