//! The words of the language: fixed lists, and names that a seed invents.
//!
//! Within a list no word is a prefix of another, so that a word is known to have ended without looking further.
//! Words that may follow "a" begin with a consonant.

use super::table::below;
use rand::Rng;

/// Lists that are the same in every language: a name, and the words, with commas between them.
pub(super) const FIXED: &[(&str, &str)] = &[
    (
        "woman",
        "Ada, Agnes, Beatrix, Berta, Cecily, Clara, Dorothea, Edith, Elsa, Emma, Flora, Freda, Greta, Hanna, Hedwig, \
         Helen, Ida, Ingrid, Irma, Judith, Karla, Klara, Lena, Lotte, Mabel, Mara, Martha, Matilda, Maud, Nora, Olga, \
         Ottilie, Paula, Petra, Quirina, Rosa, Ruth, Selma, Sofia, Tilda, Ulla, Ursula, Vera, Viola, Wanda, Wilma, \
         Yvonne, Zita",
    ),
    (
        "man",
        "Albert, Anselm, Basil, Bruno, Casper, Conrad, Cuthbert, Dietrich, Edgar, Egon, Emil, Ernst, Felix, Ferdinand, \
         Godfrey, Gregor, Gustav, Harald, Hector, Horace, Hubert, Igor, Ivo, Jasper, Jonas, Julius, Kasimir, Konrad, \
         Leopold, Ludwig, Magnus, Moritz, Nathan, Norbert, Oscar, Oswin, Otto, Percy, Quentin, Ralph, Rufus, Rupert, \
         Sigmund, Theo, Ulrich, Valentin, Walter, Yorick",
    ),
    (
        "trade",
        "baker, barber, brewer, butcher, candle maker, carpenter, clockmaker, cobbler, cook, cooper, dyer, ferry keeper, \
         fiddler, fishwife, gardener, glazier, glover, hatter, lacemaker, locksmith, map maker, midwife, miller, \
         painter, potter, printer, rope maker, saddler, schoolteacher, tailor, weaver, wheelwright",
    ),
    (
        "folk",
        "beggar, bellringer, bishop, chimney sweep, clerk, constable, doctor, farmer, fisherman, forester, gambler, \
         goatherd, grocer, hermit, hunter, juggler, lamplighter, lawyer, merchant, monk, nun, peddler, pilgrim, poet, \
         postman, sailor, shepherd, soldier, student, tax collector, tinker, widow",
    ),
    (
        "colour",
        "black, blue, brown, cherry, copper, cream, crimson, dusty, green, grey, jade, lemon, lilac, mauve, mustard, \
         navy, peach, pink, purple, red, russet, scarlet, silver, tawny, turquoise, violet, white, yellow",
    ),
    (
        "pet",
        "badger, beagle, cat, cockerel, crow, dachshund, donkey, duck, ferret, fox, goat, goose, hedgehog, hen, magpie, \
         mule, parrot, pig, poodle, rabbit, ram, sheepdog, swan, terrier, tortoise, turkey, weasel, whippet",
    ),
    (
        "petname",
        "Admiral, Biscuit, Button, Captain, Cricket, Duchess, Dumpling, Fidget, General, Gherkin, Gravy, Hiccup, \
         Kipper, Lady Jane, Marmalade, Mischief, Muffin, Mustard, Noodle, Nutmeg, Old Tom, Parsnip, Pepper, Pickle, \
         Professor, Pudding, Rascal, Snuff, Socks, Thunder, Treacle, Waffle",
    ),
    (
        "metal",
        "brass, bronze, copper, gilded, golden, jade, lead, marble, pewter, porcelain, ruby, silver, steel, tin, \
         wooden, zinc",
    ),
    (
        "thing",
        "bell, box, bracelet, buckle, candlestick, clock, comb, compass, corkscrew, cup, dagger, dish, drum, egg, \
         flute, goblet, hammer, harp, horn, hourglass, kettle, key, lantern, mirror, needle, pipe, ring, saltcellar, \
         spoon, spyglass, tankard, teapot, thimble, trumpet, whistle, windmill",
    ),
    (
        "ware",
        "apples, brooms, buns, buttons, cabbages, carrots, cherries, chestnuts, eels, figs, garlic, gingerbread, \
         herrings, honey, lemons, lobsters, melons, mushrooms, mussels, nettles, onions, oysters, pancakes, pears, \
         plums, pretzels, quinces, radishes, ribbons, sausages, tobacco, turnips, walnuts, wool",
    ),
    (
        "number",
        "eleven, twelve, thirteen, fourteen, fifteen, sixteen, seventeen, eighteen, nineteen, twenty-one, twenty-two, \
         twenty-four, twenty-six, twenty-nine, thirty-one, thirty-three, thirty-eight, forty-one, forty-four, \
         forty-five, forty-seven, fifty-two, fifty-five, fifty-nine, sixty-three, sixty-six, seventy-one, \
         seventy-eight, eighty-two, eighty-seven, ninety-three, ninety-nine",
    ),
    (
        "bird",
        "blackbirds, bats, cranes, crows, doves, gulls, herons, jackdaws, kites, larks, magpies, owls, pigeons, robins, \
         rooks, sparrows, starlings, storks, swallows, wrens",
    ),
    ("season", "spring, summer, autumn, winter, foggy, frosty, windy, rainy, cloudless, grey"),
    (
        "mood",
        "bravely, calmly, cheerfully, coldly, firmly, gently, gloomily, happily, kindly, loudly, politely, quickly, \
         quietly, sadly, sharply, slowly, softly, sternly, sweetly, wearily",
    ),
    (
        "fine",
        "broken, crooked, curious, dusty, famous, fine, forgotten, handsome, heavy, little, lovely, muddy, narrow, \
         peculiar, pleasant, quiet, ruined, sleepy, small, strange",
    ),
    (
        "nature",
        "bold, careful, cheerful, clever, clumsy, gentle, grumpy, honest, lazy, modest, nervous, patient, proud, \
         restless, shy, stubborn, thoughtful, tired, vain, young",
    ),
    (
        "landmark",
        "bakery, barn, bridge, chapel, churchyard, cornfield, crossroads, ferry, forest, fountain, gallows, gate, \
         lighthouse, meadow, milestone, orchard, pond, quarry, stile, tower, town hall, vineyard, watermill, well",
    ),
    (
        "weather",
        "a fog came down, a thin rain fell, clouds gathered, hail rattled on the roofs, it began to snow, lightning \
         flickered, the heat was terrible, the stars came out, the sun shone, the wind turned, thunder rolled, two \
         rainbows appeared",
    ),
    (
        "shrug",
        "blinked, blushed, bowed, coughed, frowned, giggled, grinned, grumbled, laughed, nodded, shrugged, sighed, \
         smiled, sneezed, snored, wept, whistled, winked",
    ),
    (
        "said",
        "announced, answered, cried, declared, explained, mumbled, murmured, muttered, remarked, replied, said, shouted, \
         whispered",
    ),
    ("hush", "cold, dark, merry, noisy, quiet, rather warm, solemn, still, very silent, wild"),
    (
        "cake",
        "basket of eggs, bottle of cider, bowl of soup, bunch of daisies, cheese, cherry pie, honey cake, jug of milk, \
         lamp, letter, loaf of bread, new hat, plum cake, pot of jam, pot of tea, roast chicken",
    ),
];

/// Lists that a seed invents: a name, how many, and the halves that are put together.
pub(super) const INVENTED: &[(&str, usize, &str, &str)] = &[
    (
        "place",
        192,
        "Al, Bar, Bel, Bran, Cor, Dal, Dor, Dun, Fal, Fen, Gar, Gil, Hal, Ist, Kes, Lan, Lor, Mar, Mor, Nor, Os, Pel, \
         Quil, Rud, Sel, Tar, Thal, Ul, Vel, Wen, Yar, Zel",
        "bury, by, cot, dale, den, der, fell, ford, gard, gate, ham, holm, lin, low, mar, mer, mond, mouth, na, ness, \
         nick, sin, stead, tor, vik, wen, wick, zig",
    ),
    (
        "river",
        64,
        "Ard, Bless, Cal, Dev, Ell, Flin, Gree, Hav, Iv, Lim, Moss, Nev, Oll, Pav, Riss, Sav, Tev, Umm, Wis, Zor",
        "a, ane, ara, eck, el, en, er, ia, ine, is, ome, on, ow, une, ury, y",
    ),
    (
        "mayor",
        64,
        "Barley, Bumble, Butter, Candle, Clover, Copper, Fiddle, Goose, Hasty, Honey, Kettle, Merry, Mustard, Nettle, \
         Penny, Pepper, Pickle, Puddle, Thistle, Treacle",
        "bottom, dew, feather, field, grave, kettle, man, nose, pot, quill, smith, snap, thorpe, well, whistle, worth",
    ),
    (
        "dish",
        64,
        "baked, boiled, burnt, candied, creamed, fried, jellied, minced, pickled, roasted, salted, smoked, spiced, \
         steamed, stewed, stuffed",
        " apples, beets, bream, carp, crabs, dates, ducklings, eels, eggs, figs, goose, ham, leeks, lentils, parsnips, \
         pears, pigeons, plums, snails, trout, turnips, veal",
    ),
    (
        "goods",
        64,
        "blue, clay, felt, glass, lace, leather, linen, paper, pearl, satin, silk, slate, straw, velvet, wax, willow",
        " aprons, bags, balls, belts, birds, bonnets, boots, boxes, cloaks, collars, dolls, fans, flowers, gloves, \
         hats, masks, purses, ropes, sails, shoes",
    ),
    (
        "inn",
        64,
        "Bald, Black, Blind, Clever, Crooked, Dancing, Drunken, Flying, Golden, Happy, Hungry, Jolly, Laughing, Merry, \
         Sleeping, Thirsty",
        " Admiral, Bear, Boar, Bride, Bull, Crow, Dragon, Duke, Eagle, Friar, Hare, Heron, Lion, Mermaid, Otter, Owl, \
         Pike, Queen, Raven, Stag, Tinker, Widow, Wolf",
    ),
    (
        "saint",
        64,
        "Ab, Ag, Bal, Bon, Chris, Cler, Dem, Ebb, Ful, Ger, Hil, Ign, Lam, Mel, Nic, Ol, Pan, Rem, Sev, Tib, Val, Wil",
        "ada, anius, atia, bert, bold, drun, elia, eric, frid, gar, ianus, ibrand, idor, onius, orin, ulf, undis, wald",
    ),
    (
        "beast",
        64,
        "barking, burning, crowned, dancing, double, flying, kneeling, leaping, roaring, running, sitting, sleeping, \
         striped, two-headed, weeping, winged",
        " badger, bear, bee, boar, bull, camel, cat, crab, crane, dolphin, dragon, eagle, fish, goat, griffin, hare, \
         hound, lion, mole, owl, rat, snail, stag, swan, toad, wolf",
    ),
];

/// What is known of every place: the name of a relation, and the list that its objects come from.
pub(super) const RELATIONS: &[(&str, &str)] = &[
    ("river", "river"),
    ("mayor", "mayor"),
    ("dish", "dish"),
    ("goods", "goods"),
    ("inn", "inn"),
    ("saint", "saint"),
    ("beast", "beast"),
    ("beyond", "place"),
];

/// The list whose words have facts.
pub(super) const SUBJECT: &str = "place";

/// Every list with the weight of each word.
pub(super) fn lists(rng: &mut impl Rng) -> Vec<(&'static str, Vec<(String, u64)>)> {
    let fixed = FIXED.iter().map(|&(name, words)| (name, split(words).map(|word| (word.to_string(), 1)).collect()));
    let mut lists: Vec<_> = fixed.collect();
    for &(name, count, first, second) in INVENTED {
        let words = invent(count, first, second, rng).into_iter().enumerate();
        // Some places are talked about ten times as often as others, so that facts are learned one after another
        // rather than all at once.
        let weight = |rank| if name == SUBJECT { 10_000 / (rank as u64 + 20) } else { 1 };
        lists.push((name, words.map(|(rank, word)| (word, weight(rank))).collect()));
    }
    lists
}

/// `count` different pairs of halves, none a prefix of another.
fn invent(count: usize, first: &str, second: &str, rng: &mut impl Rng) -> Vec<String> {
    // Only a leading space of `second` counts: it says that the halves are words of their own.
    let gap = if second.starts_with(' ') { " " } else { "" };
    let mut pairs: Vec<String> =
        split(first).flat_map(|a| split(second).map(move |b| format!("{a}{gap}{b}"))).collect();
    let mut words: Vec<String> = Vec::with_capacity(count);
    while words.len() < count {
        let word = pairs.swap_remove(below(pairs.len() as u64, rng) as usize);
        if !words.iter().any(|other| word.starts_with(other.as_str()) || other.starts_with(&word)) {
            words.push(word);
        }
    }
    words
}

fn split(words: &str) -> impl Iterator<Item = &str> {
    words.split(',').map(str::trim)
}
