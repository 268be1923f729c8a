// Tables, and binary searches in them. BM25 alone gives frequent words a low weight, but in a store
// of a few notes no word is frequent: "what", "when" and "the" would then be found like any other
// and choose the passages. One list for all languages would drop subjects (die is German's article
// and an English verb, son a pronoun and a child), so the question's language is guessed first, by
// which list has most of its words.
//
// The other tables rank what is left by how much it says of a subject: aspects (name, date), common
// words (pay, high), fillers (please) and courtesies (thanks). They count where a question may have
// to be refused, and where the words that no document has are named.
#include "retrieval/function_words.h"

#include <algorithm>
#include <array>

namespace weft::retrieval {
namespace {

// Articles, pronouns, prepositions, conjunctions, auxiliaries and question words; folded, as the
// index folds words, and sorted. No numbers, and no word that as often is a subject.
constexpr std::string_view kEnglish[] = {
    "a",          "about",    "above",   "after",   "again",      "against", "all",     "also",
    "am",         "an",       "and",     "any",     "are",        "aren",    "arent",   "as",
    "at",         "be",       "because", "been",    "before",     "being",   "below",   "between",
    "both",       "but",      "by",      "can",     "cannot",     "cant",    "could",   "couldn",
    "couldnt",    "d",        "did",     "didn",    "didnt",      "do",      "does",    "doesn",
    "doesnt",     "doing",    "don",     "done",    "dont",       "during",  "each",    "either",
    "else",       "ever",     "few",     "for",     "from",       "further", "get",     "give",
    "got",        "had",      "hadn",    "hadnt",   "has",        "hasn",    "hasnt",   "have",
    "haven",      "havent",   "having",  "he",      "her",        "here",    "heres",   "hers",
    "herself",    "him",      "himself", "his",     "how",        "however", "hows",    "i",
    "if",         "im",       "in",      "into",    "is",         "isn",     "isnt",    "it",
    "its",        "itself",   "ive",     "just",    "ll",         "m",       "may",     "me",
    "might",      "mine",     "more",    "most",    "much",       "must",    "my",      "myself",
    "neither",    "no",       "nor",     "not",     "now",        "of",      "off",     "on",
    "once",       "only",     "onto",    "or",      "other",      "others",  "our",     "ours",
    "ourselves",  "out",      "over",    "own",     "per",        "please",  "rather",  "re",
    "s",          "same",     "shall",   "shan",    "she",        "should",  "shouldn", "shouldnt",
    "so",         "some",     "such",    "t",       "tell",       "than",    "that",    "thats",
    "the",        "their",    "theirs",  "them",    "themselves", "then",    "there",   "theres",
    "these",      "they",     "theyre",  "this",    "those",      "through", "to",      "too",
    "under",      "until",    "unto",    "up",      "upon",       "us",      "ve",      "very",
    "via",        "was",      "wasn",    "wasnt",   "we",         "were",    "weren",   "werent",
    "what",       "whatever", "whats",   "when",    "whens",      "where",   "wheres",  "whether",
    "which",      "while",    "who",     "whom",    "whos",       "whose",   "why",     "whys",
    "will",       "with",     "within",  "without", "won",        "wont",    "would",   "wouldn",
    "wouldnt",    "yes",      "yet",     "you",     "your",       "youre",   "yours",   "yourself",
    "yourselves", "youve"};

constexpr std::string_view kGerman[] = {
    "aber",    "alle",    "allem",   "allen",    "aller",   "alles",    "als",     "also",
    "am",      "an",      "ander",   "andere",   "anderem", "anderen",  "anderer", "anderes",
    "auch",    "auf",     "aus",     "bei",      "beim",    "bevor",    "bin",     "bis",
    "bist",    "da",      "damit",   "dann",     "darf",    "das",      "dass",    "dasselbe",
    "dazu",    "daß",     "dein",    "deine",    "deinem",  "deinen",   "deiner",  "dem",
    "den",     "denn",    "der",     "deren",    "des",     "dessen",   "dich",    "die",
    "dies",    "diese",   "diesem",  "diesen",   "dieser",  "dieses",   "dir",     "doch",
    "dort",    "du",      "durch",   "durfen",   "ein",     "eine",     "einem",   "einen",
    "einer",   "eines",   "er",      "es",       "etwas",   "euch",     "euer",    "eure",
    "fur",     "gegen",   "gibt",    "hab",      "habe",    "haben",    "habt",    "hast",
    "hat",     "hatte",   "hatten",  "hier",     "hin",     "hinter",   "ich",     "ihm",
    "ihn",     "ihnen",   "ihr",     "ihre",     "ihrem",   "ihren",    "ihrer",   "ihres",
    "im",      "in",      "indem",   "ins",      "ist",     "jede",     "jedem",   "jeden",
    "jeder",   "jedes",   "jene",    "jenem",    "jenen",   "jener",    "jenes",   "jetzt",
    "kann",    "kannst",  "kein",    "keine",    "keinem",  "keinen",   "keiner",  "konnen",
    "konnt",   "konnte",  "man",     "mein",     "meine",   "meinem",   "meinen",  "meiner",
    "mich",    "mir",     "mit",     "mochte",   "mochten", "mochtest", "muss",    "mussen",
    "musste",  "nach",    "nicht",   "noch",     "nun",     "nur",      "ob",      "oder",
    "ohne",    "sehr",    "sein",    "seine",    "seinem",  "seinen",   "seiner",  "seines",
    "seit",    "selbst",  "sich",    "sie",      "sind",    "so",       "solche",  "solchem",
    "solchen", "solcher", "soll",    "sollte",   "sondern", "uber",     "um",      "und",
    "uns",     "unser",   "unsere",  "unter",    "viel",    "viele",    "vom",     "von",
    "vor",     "wahrend", "wann",    "war",      "ware",    "waren",    "warst",   "warum",
    "was",     "wegen",   "weil",    "welche",   "welchem", "welchen",  "welcher", "welches",
    "wem",     "wen",     "wenn",    "wer",      "werde",   "werden",   "weshalb", "wessen",
    "wie",     "wieso",   "wieviel", "wieviele", "will",    "wir",      "wird",    "wo",
    "woher",   "wohin",   "wollen",  "woran",    "worauf",  "worin",    "wurde",   "wurden",
    "zu",      "zum",     "zur",     "zwischen"};

constexpr std::string_view kFrench[] = {
    "a",        "afin",    "ai",      "ainsi",    "alors",   "apres",  "as",      "au",
    "aucun",    "aucune",  "aussi",   "autre",    "autres",  "aux",    "avaient", "avait",
    "avant",    "avec",    "avez",    "avoir",    "avons",   "c",      "ce",      "ceci",
    "cela",     "celle",   "celles",  "celui",    "ces",     "cet",    "cette",   "ceux",
    "chez",     "ci",      "combien", "comme",    "comment", "d",      "dans",    "de",
    "depuis",   "des",     "dois",    "doit",     "doivent", "donc",   "dont",    "du",
    "elle",     "elles",   "en",      "entre",    "es",      "est",    "et",      "etaient",
    "etait",    "etant",   "ete",     "etes",     "etre",    "eu",     "eux",     "fallait",
    "faudrait", "faut",    "font",    "fut",      "ici",     "il",     "ils",     "j",
    "je",       "l",       "la",      "laquelle", "le",      "lequel", "les",     "lesquelles",
    "lesquels", "leur",    "leurs",   "lors",     "lui",     "m",      "ma",      "mais",
    "me",       "meme",    "memes",   "mes",      "moi",     "mon",    "n",       "ne",
    "ni",       "nos",     "notre",   "nous",     "on",      "ont",    "ou",      "par",
    "pas",      "pendant", "peu",     "peut",     "peuvent", "peux",   "plus",    "pour",
    "pourquoi", "puis",    "qu",      "quand",    "que",     "quel",   "quelle",  "quelles",
    "quels",    "qui",     "quoi",    "s",        "sa",      "sans",   "se",      "sera",
    "serait",   "ses",     "si",      "sommes",   "son",     "sont",   "sous",    "sur",
    "t",        "ta",      "te",      "tes",      "toi",     "ton",    "tous",    "tout",
    "toute",    "toutes",  "tres",    "tu",       "un",      "une",    "vers",    "vos",
    "votre",    "vous",    "y"};

constexpr std::string_view kSpanish[] = {
    "a",       "acerca", "ademas", "al",       "algo",    "alguna",   "algunas",  "alguno",
    "algunos", "ante",   "antes",  "aquel",    "aquella", "aquellas", "aquellos", "aqui",
    "asi",     "aun",    "aunque", "cada",     "como",    "con",      "contra",   "cual",
    "cuales",  "cuando", "cuanta", "cuantas",  "cuanto",  "cuantos",  "cuya",     "cuyo",
    "de",      "debe",   "deben",  "debo",     "del",     "desde",    "donde",    "dos",
    "durante", "e",      "el",     "ella",     "ellas",   "ellos",    "en",       "entre",
    "era",     "eran",   "eres",   "es",       "esa",     "esas",     "ese",      "eso",
    "esos",    "esta",   "estaba", "estaban",  "estamos", "estan",    "estar",    "estas",
    "este",    "esto",   "estos",  "fue",      "fueron",  "ha",       "haber",    "habia",
    "han",     "hasta",  "hay",    "la",       "las",     "le",       "les",      "lo",
    "los",     "mas",    "me",     "mi",       "mis",     "mucho",    "muy",      "nada",
    "ni",      "no",     "nos",    "nosotros", "o",       "os",       "otra",     "otras",
    "otro",    "otros",  "para",   "pero",     "poco",    "por",      "porque",   "puede",
    "pueden",  "puedo",  "pues",   "que",      "quien",   "quienes",  "se",       "sea",
    "ser",     "si",     "sido",   "sin",      "sobre",   "son",      "su",       "sus",
    "tambien", "tan",    "tanto",  "te",       "tenemos", "tengo",    "tiene",    "tienen",
    "tu",      "tus",    "un",     "una",      "unas",    "uno",      "unos",     "usted",
    "y",       "ya",     "yo"};

constexpr std::string_view kItalian[] = {
    "a",      "abbiamo", "ad",     "agli",   "ai",     "al",     "alla",   "alle",   "allo",
    "anche",  "avere",   "c",      "che",    "chi",    "ci",     "cio",    "co",     "coi",
    "col",    "come",    "con",    "contro", "cosa",   "cui",    "d",      "da",     "dagli",
    "dai",    "dal",     "dalla",  "dalle",  "dallo",  "degli",  "dei",    "del",    "dell",
    "della",  "delle",   "dello",  "deve",   "devo",   "devono", "di",     "dopo",   "dove",
    "e",      "ed",      "era",    "erano",  "essere", "fra",    "fu",     "furono", "gia",
    "gli",    "ha",      "hanno",  "ho",     "i",      "il",     "in",     "io",     "l",
    "la",     "le",      "lei",    "li",     "lo",     "loro",   "lui",    "ma",     "me",
    "mentre", "mi",      "mia",    "mie",    "miei",   "mio",    "molto",  "ne",     "negli",
    "nei",    "nel",     "nell",   "nella",  "nelle",  "nello",  "no",     "noi",    "non",
    "nostra", "nostro",  "o",      "ogni",   "per",    "perche", "piu",    "poi",    "possiamo",
    "posso",  "prima",   "puo",    "quale",  "quali",  "quando", "quanta", "quante", "quanti",
    "quanto", "quegli",  "quei",   "quel",   "quella", "quelle", "quello", "quest",  "questa",
    "queste", "questi",  "questo", "qui",    "se",     "sei",    "senza",  "si",     "sia",
    "siamo",  "sono",    "sopra",  "sotto",  "sta",    "su",     "sua",    "sue",    "sugli",
    "sui",    "sul",     "sulla",  "sulle",  "sullo",  "suo",    "suoi",   "tra",    "tu",
    "tua",    "tuo",     "tutti",  "tutto",  "un",     "una",    "uno",    "voi"};

constexpr std::string_view kPortuguese[] = {
    "a",      "ao",      "aos",    "aquela",  "aquelas", "aquele", "aqueles", "aquilo",  "as",
    "ate",    "cada",    "com",    "como",    "contra",  "da",     "das",     "de",      "dela",
    "dele",   "deles",   "depois", "deve",    "devem",   "devo",   "do",      "dos",     "e",
    "ela",    "elas",    "ele",    "eles",    "em",      "entre",  "era",     "eram",    "essa",
    "essas",  "esse",    "esses",  "esta",    "estao",   "estas",  "estava",  "estavam", "este",
    "estes",  "eu",      "foi",    "foram",   "ha",      "isso",   "isto",    "ja",      "la",
    "lhe",    "lhes",    "mais",   "mas",     "me",      "mesmo",  "meu",     "minha",   "muito",
    "na",     "nao",     "nas",    "nem",     "no",      "nos",    "nossa",   "nosso",   "num",
    "numa",   "o",       "onde",   "os",      "ou",      "para",   "pela",    "pelas",   "pelo",
    "pelos",  "pode",    "podem",  "por",     "porque",  "posso",  "quais",   "qual",    "quando",
    "quanta", "quantas", "quanto", "quantos", "que",     "quem",   "se",      "seja",    "sem",
    "ser",    "seu",     "seus",   "so",      "sob",     "sobre",  "sua",     "suas",    "tambem",
    "tem",    "temos",   "tenho",  "teu",     "tinha",   "tu",     "tua",     "um",      "uma",
    "umas",   "uns",     "voce",   "voces"};

constexpr std::string_view kDutch[] = {
    "aan",    "al",    "alle",   "als",    "ben",     "bent",    "bij", "daar",   "dan",
    "dat",    "de",    "deze",   "die",    "dit",     "door",    "dus", "een",    "en",
    "er",     "ge",    "geen",   "haar",   "had",     "hadden",  "heb", "hebben", "heeft",
    "hem",    "het",   "hier",   "hij",    "hoe",     "hoeveel", "hun", "ik",     "in",
    "is",     "ja",    "je",     "jij",    "jouw",    "jullie",  "kan", "kon",    "kunnen",
    "kunt",   "maar",  "mag",    "me",     "meer",    "men",     "met", "mijn",   "moet",
    "moeten", "mogen", "na",     "naar",   "niet",    "niets",   "nog", "nu",     "of",
    "om",     "omdat", "onder",  "ons",    "onze",    "ook",     "op",  "over",   "per",
    "te",     "tegen", "tot",    "tussen", "u",       "uit",     "uw",  "van",    "veel",
    "voor",   "waar",  "waarin", "waarom", "wanneer", "waren",   "was", "wat",    "we",
    "wel",    "welk",  "welke",  "werd",   "werden",  "wie",     "wij", "wil",    "word",
    "worden", "wordt", "zal",    "ze",     "zelf",    "zich",    "zij", "zijn",   "zo",
    "zonder", "zou",   "zouden", "zullen"};

// Folded and sorted, of all the languages: what is one of these in one language and a subject in
// another hardly matters, as they count only where the documents have no other word of a question.
constexpr std::string_view kAspects[] = {
    "aantal",    "address",   "addresses",     "adres",       "adresse",
    "age",       "alter",     "amount",        "aniversario", "annee",
    "annees",    "anni",      "anniversaire",  "anno",        "ano",
    "anos",      "anzahl",    "appelle",       "art",         "birthday",
    "birthdays", "called",    "chama",         "chiama",      "color",
    "colore",    "colors",    "colour",        "colours",     "compleanno",
    "cor",       "cost",      "costa",         "costs",       "couleur",
    "coute",     "cuesta",    "cumpleanos",    "custa",       "dag",
    "dagen",     "data",      "date",          "dates",       "datum",
    "day",       "days",      "dia",           "dias",        "direccion",
    "duree",     "edad",      "email",         "endereco",    "eta",
    "farbe",     "fecha",     "geburtstag",    "gewicht",     "giorni",
    "giorno",    "grosse",    "große",         "hauteur",     "heet",
    "height",    "heisst",    "heißt",         "heure",       "heures",
    "hohe",      "hora",      "horas",         "hour",        "hours",
    "idade",     "indirizzo", "jaar",          "jahr",        "jahre",
    "jour",      "jours",     "kind",          "kinds",       "kleur",
    "kost",      "kosten",    "kostet",        "lange",       "length",
    "lieu",      "llama",     "long",          "longueur",    "lugar",
    "luogo",     "maand",     "many",          "mean",        "meaning",
    "means",     "mes",       "mese",          "meses",       "mesi",
    "mois",      "monat",     "monate",        "month",       "months",
    "mot",       "naam",      "name",          "named",       "names",
    "nom",       "nombre",    "nome",          "noms",        "number",
    "numbers",   "numero",    "nummer",        "old",         "ora",
    "ore",       "ort",       "people",        "person",      "persons",
    "peso",      "phone",     "plaats",        "place",       "places",
    "poids",     "precio",    "preco",         "preis",       "prezzo",
    "price",     "prices",    "prijs",         "prix",        "sort",
    "sorts",     "stunden",   "tag",           "tage",        "taille",
    "telefon",   "telefone",  "telefonnummer", "telefono",    "telefoonnummer",
    "telephone", "tempo",     "temps",         "thing",       "things",
    "tiempo",    "tijd",      "time",          "times",       "type",
    "types",     "uhr",       "uhrzeit",       "uur",         "verjaardag",
    "week",      "weeks",     "weight",        "woche",       "word",
    "wort",      "year",      "years",         "zahl",        "zeit"};

// Folded and sorted, of all the languages: greetings and thanks, what is asked of whoever answers,
// and the documents themselves. In a document they may be a subject, so they count there.
constexpr std::string_view kFillers[] = {
    "actually",  "aide",      "aider",     "anybody", "anyone",   "anything",   "anywhere",
    "bitte",     "bonjour",   "busco",     "ciao",    "danke",    "dankje",     "document",
    "documents", "dokument",  "dokumente", "erklare", "everyone", "everything", "exactly",
    "explain",   "favor",     "file",      "files",   "find",     "finde",      "finden",
    "frage",     "gern",      "gerne",     "goes",    "going",    "gone",       "gracias",
    "grazie",    "hallo",     "hello",     "help",    "hey",      "hi",         "hilf",
    "hilfe",     "hola",      "know",      "knows",   "let",      "like",       "looking",
    "maybe",     "mention",   "mentioned", "merci",   "need",     "needed",     "needs",
    "nochmal",   "note",      "notes",     "notiz",   "notizen",  "obrigada",   "obrigado",
    "ok",        "okay",      "ola",       "plait",   "plz",      "question",   "really",
    "remember",  "remind",    "sag",       "sage",    "say",      "says",       "show",
    "someone",   "something", "somewhere", "sorry",   "thank",    "thanks",     "thx",
    "trouve",    "trouver",   "want",      "wanted",  "wants",    "weiss",      "weißt",
    "wissen",    "wonder",    "wondering", "zeig",    "zeige"};

// Folded and sorted, of all the languages: verbs, adjectives and a few nouns that questions are
// asked with about anything (pay, high, appointment; zahlen, hoch, Termin). They are searched for
// like any other; but that no document has one tells a reader nothing.
constexpr std::string_view kCommon[] = {
    "abholen",      "ablauf",       "according",   "acheter",     "actual",
    "actuel",       "add",          "afspraak",    "agree",       "aller",
    "allow",        "allowed",      "alt",         "alta",        "alte",
    "alten",        "alto",         "angabe",      "angaben",     "antwort",
    "appeler",      "appelle",      "apply",       "appointment", "appointments",
    "appuntamento", "arrange",      "arrive",      "arriver",     "art",
    "ask",          "asked",        "asks",        "attuale",     "atual",
    "available",    "bad",          "baixo",       "barato",      "beau",
    "become",       "begin",        "begins",      "bekomme",     "bekommen",
    "bekommt",      "bene",         "beschikbaar", "besoin",      "besser",
    "best",         "beste",        "besten",      "betaal",      "betaalt",
    "betalen",      "betrag",       "betragt",     "better",      "bezahle",
    "bezahlen",     "bezahlt",      "big",         "boa",         "bom",
    "bon",          "bonne",        "book",        "booked",      "booking",
    "bought",       "brauche",      "brauchen",    "braucht",     "break",
    "breit",        "brengen",      "breve",       "bring",       "bringen",
    "brought",      "buena",        "bueno",       "buono",       "buy",
    "buys",         "call",         "calls",       "caro",        "carry",
    "cerca",        "change",       "changed",     "check",       "cher",
    "choose",       "chose",        "cita",        "close",       "combien",
    "come",         "comes",        "comprar",     "comprare",    "consulta",
    "contain",      "contains",     "contem",      "contiene",    "contient",
    "correct",      "corto",        "cosa",        "cosas",       "cost",
    "costare",      "coute",        "creer",       "cuenta",      "current",
    "currently",    "curto",        "custo",       "da",          "dar",
    "dauer",        "dauert",       "debemos",     "decide",      "decided",
    "decir",        "deep",         "deja",        "dernier",     "derniere",
    "describe",     "detail",       "details",     "devi",        "dice",
    "dicen",        "dicht",        "difference",  "different",   "dijo",
    "dire",         "disponibile",  "disponible",  "disponivel",  "dit",
    "diz",          "dizer",        "do",          "doit",        "donne",
    "donner",       "dura",         "durare",      "dure",        "durer",
    "duur",         "duurt",        "easy",        "ecrit",       "einfach",
    "eintragen",    "encontra",     "encontrar",   "encuentra",   "end",
    "ends",         "enough",       "erhalten",    "erste",       "ersten",
    "esatto",       "estan",        "exact",       "exacto",      "exato",
    "expect",       "expensive",    "fa",          "facciamo",    "faire",
    "fait",         "fallig",       "fanno",       "far",         "fare",
    "fast",         "faz",          "fazer",       "fica",        "ficar",
    "fill",         "findet",       "fix",         "fixe",        "follow",
    "free",         "frei",         "fruh",        "full",        "funciona",
    "funziona",     "gaan",         "gaat",        "ganar",       "ganz",
    "gebraucht",    "gebruiken",    "gebruikt",    "gebucht",     "gedaan",
    "gehe",         "gehen",        "geht",        "gekauft",     "gekostet",
    "gelten",       "gemacht",      "genau",       "genoeg",      "genug",
    "gesagt",       "geschieht",    "getan",       "gezegd",      "gilt",
    "give",         "given",        "gives",       "go",          "goed",
    "goede",        "good",         "grand",       "grande",      "great",
    "groot",        "gros",         "gross",       "grote",       "große",
    "großen",       "gut",          "gute",        "guten",       "guter",
    "habite",       "hace",         "hacer",       "hago",        "halten",
    "happen",       "happened",     "happens",     "hard",        "haut",
    "haute",        "hear",         "heissen",     "heiße",       "heißen",
    "heute",        "high",         "hoch",        "hoge",        "hohem",
    "hohen",        "hoher",        "hohes",       "hold",        "holds",
    "holen",        "hoog",         "houden",      "important",   "importante",
    "include",      "included",     "includes",    "info",        "informacao",
    "informacion",  "informacoes",  "informatie",  "information", "informationen",
    "informations", "informazioni", "ir",          "jusque",      "kaufe",
    "kaufen",       "keep",         "keeps",       "kept",        "komen",
    "kommen",       "kommt",        "komt",        "kopen",       "kort",
    "krijgen",      "krijgt",       "kurz",        "laat",        "laatste",
    "laisser",      "lang",         "langer",      "large",       "largo",
    "lasst",        "last",         "latest",      "laufen",      "lauft",
    "learn",        "least",        "leave",       "left",        "leicht",
    "less",         "letzte",       "letzten",     "letzter",     "libre",
    "liegen",       "liegt",        "liggen",      "ligt",        "list",
    "listed",       "live",         "lives",       "lleva",       "llevar",
    "long",         "longer",       "longo",       "longue",      "look",
    "looks",        "lopen",        "lose",        "low",         "lunga",
    "lungo",        "maakt",        "mache",       "machen",      "macht",
    "made",         "main",         "make",        "maken",       "makes",
    "mal",          "marche",       "matter",      "meet",        "mejor",
    "melhor",       "menor",        "mettere",     "mettre",      "mieux",
    "migliore",     "mogelijk",     "moglich",     "moins",       "moment",
    "montant",      "mostly",       "move",        "much",        "muessen",
    "nachste",      "nachsten",     "nachster",    "necesario",   "necesita",
    "necesito",     "necessaire",   "necessario",  "neemt",       "nehmen",
    "nemen",        "neu",          "neue",        "neuen",       "neuer",
    "neuf",         "new",          "next",        "nieuw",       "nieuwe",
    "nimmt",        "nodig",        "normal",      "normally",    "notig",
    "nouveau",      "nouvelle",     "nova",        "novo",        "nueva",
    "nuevo",        "nuova",        "nuovo",       "obtenir",     "offer",
    "often",        "ofter",        "open",        "order",       "ordered",
    "other",        "owe",          "own",         "owned",       "owner",
    "owns",         "paga",         "pagamos",     "pagar",       "pagare",
    "paghiamo",     "pago",         "paid",        "paie",        "paient",
    "passe",        "passieren",    "passiert",    "pay",         "payer",
    "paying",       "pays",         "pequeno",     "petit",       "petite",
    "piccolo",      "plan",         "poner",       "posible",     "possibile",
    "possible",     "possivel",     "precisa",     "preciso",     "premier",
    "premiere",     "prend",        "prende",      "prendere",    "prendre",
    "prevu",        "prochain",     "prochaine",   "proche",      "pronto",
    "prossima",     "prossimo",     "proxima",     "proximo",     "put",
    "quer",         "quero",        "quick",       "quickly",     "quiere",
    "quiero",       "reach",        "reached",     "read",        "ready",
    "receive",      "recent",       "recently",    "recommend",   "rendez",
    "rendre",       "rent",         "right",       "run",         "runs",
    "sabe",         "saber",        "said",        "sait",        "sapere",
    "savoir",       "schnell",      "schreibt",    "schwer",      "see",
    "seen",         "sehen",        "send",        "sent",        "serve",
    "servono",      "set",          "short",       "sirve",       "size",
    "small",        "snel",         "soon",        "souvent",     "spat",
    "specific",     "spend",        "staan",       "staat",       "stare",
    "start",        "started",      "starts",      "stay",        "stayed",
    "stehen",       "steht",        "stop",        "suffit",      "supposed",
    "take",         "taken",        "takes",       "talk",        "tall",
    "tener",        "ter",          "termin",      "termine",     "teuer",
    "thing",        "think",        "thought",     "tief",        "told",
    "tomar",        "took",         "total",       "trouve",      "trova",
    "trovare",      "true",         "try",         "tun",         "turn",
    "tut",          "ultima",       "ultimo",      "usa",         "usar",
    "usare",        "use",          "used",        "useful",      "uses",
    "usual",        "usually",      "utilise",     "utiliser",    "utiliza",
    "utilizza",     "va",           "vaak",        "vais",        "vale",
    "various",      "vaut",         "vedere",      "vem",         "venir",
    "ver",          "verwenden",    "verwendet",   "viene",       "viennent",
    "vient",        "visit",        "vive",        "voir",        "volgende",
    "vont",         "vorhanden",    "vuole",       "wahr",        "wait",
    "way",          "weit",         "went",        "wichtig",     "wide",
    "wohnt",        "wonen",        "woont",       "work",        "works",
    "write",        "written",      "wrong",       "wrote",       "zahle",
    "zahlen",       "zahlt",        "zeggen",      "zegt",        "zien",
    "zit",          "zitten",       "zustandig"};

// Folded and sorted, of all the languages: what a turn of a conversation may be that asks nothing.
constexpr std::string_view kCourtesies[] = {
    "alright",    "beaucoup", "bedankt", "bitte",  "bonjour",   "bye",     "cheers",  "ciao",
    "cool",       "dank",     "danke",   "dankje", "excellent", "favor",   "gern",    "gerne",
    "gracias",    "grazie",   "great",   "hallo",  "hello",     "hey",     "hi",      "hmm",
    "hola",       "klasse",   "lot",     "merci",  "mille",     "muchas",  "nice",    "obrigada",
    "obrigado",   "ok",       "okay",    "ola",    "oui",       "parfait", "perfect", "perfecto",
    "perfekt",    "perfetto", "plait",   "please", "plz",       "prima",   "schon",   "sim",
    "sorry",      "super",    "thank",   "thanks", "thx",       "toll",    "tschuss", "understood",
    "verstanden", "vielen",   "welcome", "yes"};

std::span<const std::string_view> words_of(Language language) {
  switch (language) {
    case Language::kGerman:
      return kGerman;
    case Language::kFrench:
      return kFrench;
    case Language::kSpanish:
      return kSpanish;
    case Language::kItalian:
      return kItalian;
    case Language::kPortuguese:
      return kPortuguese;
    case Language::kDutch:
      return kDutch;
    case Language::kEnglish:
      break;
  }
  return kEnglish;
}

}  // namespace

bool is_function_word(Language language, std::string_view word) {
  return std::ranges::binary_search(words_of(language), word);
}

bool is_function_word(std::string_view word) {
  for (int i = 0; i < kLanguages; ++i) {
    if (is_function_word(static_cast<Language>(i), word)) return true;
  }
  return false;
}

bool is_filler_word(std::string_view word) { return std::ranges::binary_search(kFillers, word); }

bool is_aspect_word(std::string_view word) { return std::ranges::binary_search(kAspects, word); }

bool is_common_word(std::string_view word) { return std::ranges::binary_search(kCommon, word); }

bool is_courtesy(std::span<const std::string> content) {
  return !content.empty() && std::ranges::all_of(content, [](const std::string& word) {
    return std::ranges::binary_search(kCourtesies, word);
  });
}

Language language_of(std::span<const std::string> words) {
  constexpr int64_t kClear = 2;  // with one, "dal recipe" would be Italian
  Language best = Language::kEnglish;
  int64_t most = 0;
  for (int i = 0; i < kLanguages; ++i) {
    const auto language = static_cast<Language>(i);
    const int64_t n = std::ranges::count_if(
        words, [&](const std::string& word) { return is_function_word(language, word); });
    const bool is_clear = language == Language::kEnglish || n >= kClear;
    if (n <= most || !is_clear) continue;
    best = language;
    most = n;
  }
  return best;
}

std::vector<std::string> content_words(std::span<const std::string> words) {
  const Language language = language_of(words);
  std::vector<std::string> content;
  for (size_t i = 0; i < words.size(); ++i) {
    // In "how many potatoes" the word "many" is not searched for; in "many men" it may be.
    const bool is_count = i > 0 && words[i] == "many" && words[i - 1] == "how";
    if (!is_count && !is_function_word(language, words[i])) content.push_back(words[i]);
  }
  return content;
}

}  // namespace weft::retrieval
