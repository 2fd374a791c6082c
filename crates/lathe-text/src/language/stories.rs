//! What happens in a document: its stages in order, and the sentences of each.
//!
//! `<list>` is drawn from a list, `<list=name>` is drawn and remembered under a name, `{name}` is what was remembered,
//! `[relation]` is what is known of the last place named. After a sentence comes one of the same stage, with chance
//! `stay` / 8, or one of the next stage. The choice looks at nothing else, so that grammar needs no far context; all
//! that sentences recall is introduced in the opening stages, or in the sentence itself. A sentence begins with text
//! that tells it from all that could stand in its place.

pub(super) struct Stage {
    /// Chance, in eighths, that another sentence of this stage follows.
    pub stay: u64,
    /// What stands between the stage before and this one.
    pub before: &'static str,
    pub sentences: &'static [&'static str],
}

/// Chances of staying are in units of 1 / EIGHTHS.
pub(super) const EIGHTHS: u64 = 8;

/// Ends every document.
pub(super) const BORDER: &str = "\n\n";

pub(super) const STAGES: &[Stage] = &[
    // Who she was.
    Stage {
        stay: 0,
        before: "",
        sentences: &[
            "Once there was a <trade=trade> called <woman=heroine>, who lived in <place=home> on the river [river].",
            "In <place=home> there lived a <nature> <trade=trade> by the name of <woman=heroine>.",
            "They still talk about <woman=heroine>, the <nature> <trade=trade> of <place=home>.",
            "This is the story of <woman=heroine>, who was a <trade=trade> in <place=home>.",
        ],
    },
    // What she had.
    Stage {
        stay: 0,
        before: " ",
        sentences: &[
            "She owned a <colour=colour> coat and a <nature> <pet=pet> that answered to <petname=petname>.",
            "Everybody knew her <colour=colour> coat, and everybody feared her <pet=pet>, whose name was \
             <petname=petname>.",
            "In all weathers she wore a <colour=colour> coat, and behind her ran a <pet=pet> called <petname=petname>.",
        ],
    },
    // What she had from whom.
    Stage {
        stay: 0,
        before: " ",
        sentences: &[
            "Her oldest friend was <man=friend>, who had once given her a <metal=metal> <thing=treasure>.",
            "From her neighbour <man=friend> she had borrowed a <metal=metal> <thing=treasure>, and never given it back.",
            "On her birthday a man named <man=friend> had left a <metal=metal> <thing=treasure> at her door.",
        ],
    },
    // Why she left.
    Stage {
        stay: 0,
        before: " ",
        sentences: &[
            "One <season> morning she set out for <place=goal>, for she had heard of its [goods].",
            "But a letter came: she was wanted in <place=goal> before the feast of Saint [saint].",
            "Then, one <season> day, she decided to see <place=goal>, and the [beast] on its banner.",
        ],
    },
    // In the streets: much that comes back at once.
    Stage {
        stay: 5,
        before: "\n",
        sentences: &[
            "At the market a boy was selling <ware=ware>. \"Fresh {ware}, cheap {ware}!\" he cried <mood>.",
            "A <folk=stranger> sighed. \"What ails you?\" she asked the {stranger}, but the {stranger} only <shrug>.",
            "Somebody asked her the way to <place=asked>. \"To {asked}?\" she <said> <mood>. \"Follow the [river], and mind \
             the geese.\"",
            "She counted <number=count> <bird> near the <landmark>, and counted again: {count}.",
            "\"Is that you, {heroine}?\" called a <folk> from the <landmark>, and <shrug>.",
            "\"Come here, {petname}!\" she shouted, but the {pet} had found some <ware>.",
            "The wind tugged <mood> at her {colour} coat.",
            "Near the <landmark> <weather>, and she hid the {metal} {treasure} under her hat.",
            "All the while she thought of <place>, and of the [dish] they serve there.",
            "\"How far is it to {goal}?\" she asked a <folk=stranger>. The {stranger} <shrug>.",
            "Everyone turned to look at {heroine}, her {colour} coat and her {pet}.",
            "Not even in <place>, where Mayor [mayor] has forbidden <bird>, had she seen such a <fine> <landmark>.",
            "Two <nature> pilgrims from <place> prayed <mood> to Saint [saint].",
            "From <place> came a <fine> cart full of [goods].",
            "Children skipped and sang: \"<place>, [river]; <place>, [beyond]; <place>, [beast]!\"",
            "\"You must be <man=double>'s daughter,\" <said> a <folk>. \"I know no {double},\" she <said> <mood>.",
            "Behind the <landmark> a cousin of {friend} <shrug> and asked after {home}.",
        ],
    },
    // On the road: much that everybody knows.
    Stage {
        stay: 5,
        before: "\n",
        sentences: &[
            "The road led to <place>, where the mayor is called [mayor] and supper is [dish].",
            "On her list stood <place> for [goods], <place> for [dish], and <place> for Saint [saint].",
            "She promised {petname} that in {goal} a {pet} would be welcome, and <shrug>.",
            "\"A {trade} from {home} is never tired,\" she told the {pet}.",
            "A <fine> signpost pointed to <place>, on the river [river].",
            "She slept one night in <place>, at the inn called the [inn], and <weather>.",
            "In <place> they make [goods] and pray to Saint [saint].",
            "Beyond <place> lies [beyond], as every child knows, and Saint [saint] is buried there.",
            "High above <place> flew a banner with a [beast].",
            "Outside <place> they met a <folk=stranger> with <number=count> <bird>. The {stranger} would not part with \
             one of the {count}.",
            "Twice she dropped the {metal} {treasure}, and twice {petname} fetched it from the <landmark>.",
            "\"I should have stayed with {friend} in {home},\" she <said> <mood>, and <shrug>.",
            "By and by <weather>, and she pulled the {colour} coat over the {pet}.",
            "They say that <place> is full of [goods], and that Mayor [mayor] has a <colour> <thing>.",
            "Her <fine> guidebook said: <place>, on the [river], near [beyond], under the protection of Saint [saint].",
            "\"Look, {petname},\" <said> {heroine}, \"there is <place>, and there is the [inn].\"",
            "Some rider in a <colour=cloak> cloak galloped past. Mud flew from the {cloak} cloak on to her {colour} coat.",
            "What would {friend} have done, she wondered, at such a <fine> <landmark>?",
        ],
    },
    // At the inn: much that was said long before.
    Stage {
        stay: 5,
        before: "\n",
        sentences: &[
            "The innkeeper hung up her {colour} coat and <shrug>.",
            "As they do in <place>, they ate [dish], and the room was <hush>.",
            "\"And what does a {trade} want in {goal}?\" asked a <folk=stranger>. \"To eat,\" she told the {stranger} \
             <mood>.",
            "Then a <folk=stranger> sang of <place=sung>. \"{sung}, oh {sung}, where the [river] runs,\" sang the \
             {stranger}, and everyone <shrug>.",
            "\"My name is {heroine},\" she <said> <mood>, \"and this is {petname}.\"",
            "She put the {metal} {treasure} on the table, and the room grew <hush>.",
            "Somebody bet <number=count> coins that the mayor of <place> was not called [mayor]. It cost him all {count}.",
            "They argued until <weather> whether <place> has a [beast] on its banner. It has.",
            "Even the {pet} <shrug>, and outside <weather>.",
            "\"Do you know my friend {friend}?\" she asked. \"He once sold <ware=ware>.\" Nobody had heard of the {ware}, \
             or of {friend}.",
            "In the guest book she wrote: {heroine}, {trade}, of {home}, with one {pet}.",
            "All evening they drilled her: the mayor of <place>, [mayor]; its river, the [river]; its saint, [saint].",
            "A map on the wall showed <place>, with the [river] in front and [beyond] behind.",
            "\"I once lived in <place>, where everyone drinks to Mayor [mayor],\" <said> {heroine} <mood>.",
            "She dreamed of <place>, of [dish], and of the beds at the [inn].",
            "Somebody had scratched a name into the <fine> table: <woman=carved>. \"Who was {carved}?\" she asked, but \
             nobody remembered {carved}.",
            "Late at night she wrote to {friend}: \"<place> has the best [goods].\"",
        ],
    },
    // How it ended.
    Stage {
        stay: 0,
        before: "\n",
        sentences: &[
            "In the end she gave the {metal} {treasure} back to {friend}, who <shrug>.",
            "And if you pass through {home}, look for a {colour} coat and a {pet} called {petname}.",
            "When she came home to {home}, there stood {friend} at the <landmark> with a <cake>.",
            "That is how {heroine} the {trade} came to {goal}, and {petname} with her.",
        ],
    },
];
