"""Causes that rules can name, before anything is scored: they are groups of their own, not wrong pairs."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from html import unescape

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from baselines.audit.junk import JUNK, KEYWORDS, cut_at_a_length, junk_of
from ncl_bench.data.scripts import LATIN, marks, script_of, terms
from ncl_bench.npy import BoolArray, FloatArray, Int64Array

ORDER, REPEATED, BOILERPLATE, LANGUAGE = "order", "repeated caption", "boilerplate", "language"
CUT_OFF, NEAR_EQUAL, COPY = "cut off", "near-equal pictures", "copy"
NO_WORDS, REPEATED_PICTURE = "no words", "repeated picture"
REASONS: tuple[str, ...] = (ORDER, COPY, NO_WORDS, BOILERPLATE, *JUNK[:-1], REPEATED, REPEATED_PICTURE)
REASONS += (LANGUAGE, KEYWORDS, CUT_OFF, NEAR_EQUAL)
"""Where several hold, the first is named."""
JUDGED_ALL_THE_SAME = ("", NEAR_EQUAL, COPY)
"""Reasons that say nothing against the caption; the share of wrong pairs counts these rows."""
DESCRIBES_NONE = (ORDER, NO_WORDS, BOILERPLATE, *JUNK, REPEATED, CUT_OFF)
"""Reasons that say that the caption is wrong, whatever its similarity: these rows are counted as wrong."""
FEWEST_PARTNERS, LEAST_PART, OVER_USUAL = 5, 0.002, 5
"""A pasted caption is on 5 pictures, 0.2 % of all, and 5 times as many as 95 % of the captions of the set; a pasted
picture has as many captions."""
NEAR, MOST_PICTURES = 0.2, 50_000
"""Near-equal pictures are at most a fifth as far apart (1 - cosine of pooled features) as the usual picture is from its
nearest one; every two pictures are compared up to 50,000."""
LEAST_MARKED = 0.5
"""Part of the captions with a stop word of one language that makes it the language of the set."""
RARE_SCRIPT = 0.1
"""Share of captions below which those of another script than most cannot be judged."""
STOP_WORDS = {  # without words that English captions contain too, such as do and no
    "en": "a an the of in on at with and is are to from by for into his her their while near through over next",
    "de": "ein eine einen einem einer der die das den dem und mit auf im ist sind auf vor neben durch über zwei am zum",
    "fr": "un une le la les des du de et dans sur avec est sont au aux en qui près devant deux l d",
    "es": "un una el la los las de del y en con por sobre está están al que su junto dos unos",
    "it": "un una uno il lo la i gli le di del della e in con su sul sulla nel nella per è sono che due accanto",
    "pt": "um uma o a os de da e em na com por sobre está estão que ao dois duas",
    "nl": "een de het van en in op met is zijn naar door over die aan bij twee voor naast",
    "sv": "en ett den det och i på med av är som till genom vid över två framför bredvid",
    "da": "en et den det og i på med af er som til gennem ved over to foran",
    "nb": "en et den det og i på med av er som til gjennom ved over to foran",
    "fi": "ja on ovat kaksi joka jossa kanssa mies nainen koira päällä vieressä",
    "pl": "i w na z ze jest są przez po nad obok dwa dwie się",
    "cs": "a v na s se je jsou po přes vedle dva dvě který",
    "hu": "egy a az és van egyik két mellett előtt alatt",
    "ro": "un o și în pe cu de la este sunt lângă doi două care",
    "tr": "bir ve ile bu iki üzerinde yanında olan için",
    "id": "seorang sebuah di dan dengan yang pada ke dari dua sedang",
}
_WORD = re.compile(rf"(?:[^\W\d_][{marks()}]*)+")
_URL = re.compile(r"(https?:)?//\S+|www\.\S+", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]+>")
_FILE = re.compile(
    r"\S+\.(jpe?g|png|webp|gif|bmp|tiff?|heic)"
    r"|(img|dscn?|dscf|pict?|image|photo|picture|figure|screenshot|untitled|scan|foto|bild)[\s_-]*[#(]?\d+\)?"
    r"|(whatsapp image|screen ?shot)\b.*\d+"  # with date and time
    r"|[\w.()-]*\d{4,}[\w.()-]*",  # one word with a long number, such as PXL_20210101_1234
    re.IGNORECASE | re.ASCII,
)
_OF_A_PAGE = re.compile(
    r"click (here|to|on the (link|image|photo))|add to (cart|basket|bag|wish|favou?rites)"
    r"|subscribe (to|now)|sign up (now|today|here)|(enable|accept|allow|uses?) (all )?(javascript|cookies)"
    r"|skip to (main )?content|^\W*log ?in (to|or|with|here)|shop now|follow us on|share (this|on) (post|page|article"
    r"|facebook|twitter|pinterest)|(privacy|cookie) policy|terms (of (use|service)|and conditions)|may contain:"
    r"|image may contain|may be an image of|^\W*advertisement\W*$|scroll down|page not found|you (may|might) also"
    r"|(subscri\w+|sign up|join)\b.*newsletter|forgot(ten)? your password|^\W*continue (reading|shopping)"
    r"|download (the|our) app|leave a (comment|reply)"
    r"|^\W*((read|learn|show|view|see|load|find out|discover|get) (more|all|less|details)( about\b.*)?"
    r"|(view|show|see) (larger|full|original|details|the gallery)( \w+){0,3}|(sign|log) (in|out|up)( (to|with|here"
    r"|now|for|or)\b.*)?"
    r"|(back|return) to (top|home|results|list|blog|search|shop|menu|overview)|(next|previous|prev) (page|post"
    r"|article|slide)"
    r"|(buy|shop|order|book|call|donate|apply|register|download) (it )?(now|here|today)|free download"
    r"|\d+ (comments?|likes?|shares?|views?|replies|reviews?|ratings?)"
    r"|(related|recommended|popular|recent|latest|similar|trending) (articles?|posts?|products?|items?|stories"
    r"|news|videos)"
    r"|(write|add|post) (a|your) (comment|review|reply)|(pin|tweet|post|share|like|follow) (it|this|us)"
    r"|toggle \w+|(sort|filter) by\b.*|contact us|about us|(in|out of) stock|sold out|quick view)\W*$"
    r"|^\W*(share|follow|like|find|join|visit|tweet|pin|save|teil|folg|partag|suiv|compart|condivid|segui|partilh"
    r"|compartilh|del"
    r"|följ|jaa|seuraa|udostępnij|sdílet|megoszt|distribui|bagi|поделиться)\w*\W+(?:\w+\W+){0,3}(facebook|twitter"
    r"|instagram|pinterest|whatsapp|linkedin|telegram|reddit|tiktok)\W*$"
    r"|(verwend|nutz|akzept|zustimm|utilis|accept|acept|aceit|accett|gebruik|använd|brug|bruk|käytt|hyväksy|używ"
    r"|použív"
    r"|haszn|folos|kullan|guna|использ)\w* (?:\w+ ){0,3}(cookies?|cookie\w+|plik\w+ cookie)"
    r"|in den warenkorb|ajout\w+ au panier|(añad|agreg)\w+ (al carrito|a la cesta)|aggiungi al carrello|(adicion"
    r"|coloc)\w+"
    r" (ao|no) carrinho|in (de |het )?winkel(wagen|mand)|lägg i \w*(korg|vagn)|læg i (indkøbs)?kurv|legg i handlekurv"
    r"|lisää ostoskoriin|do koszyka|do koš[ií]ku|\bkosárba\b|în coș|sepete ekle|ke keranjang|в корзину|加入(购物车"
    r"|購物車)"
    r"|カートに|장바구니에|إلى السلة|ใส่ตะกร้า|कार्ट में"
    # a path through a site, or an arrow that leads on
    r"|^[^<>]{1,30}(\s[>»›→▸]\s[^<>]{1,30}){2,}$|[»›→▸▾☰]\s*$|^\s*[«‹←☰]",
    re.IGNORECASE,
)
"""What stands beside pictures on web pages."""
_GENERIC_TEXT = (
    "image,images,photo,photos,picture,pictures,img,pic,pics,photograph,an image,a photo,a picture,the image,"
    "this image,stock image,stock photo,caption,no caption,description,no description,image description,"
    "photo caption,text,alt,no text,alt text,untitled,thumbnail,logo,icon,placeholder,click to enlarge,null,"
    "none,nan,n a,na,unknown,todo,tbd,test,image not available,no image available,image may contain,image of,"
    "photo of,picture of,product image,product photo,featured image,foto,fotos,bild,bilder,kein bild,ohne titel,"
    "imagen,imágenes,sin título,imagem,sem título,immagine,senza titolo,sans titre,afbeelding,zonder titel"
)
# the buttons of a page: go on, back, search, menu, buy, log in, share
_BUTTONS = (
    "home,menu,search,tweet,share,next,previous,prev,close,cancel,submit,send,continue,download,upload,reply,login,"
    "logout,register,help,faq,contact,cookies,loading,sponsored,promoted,subscribe,unsubscribe,checkout,wishlist,"
    "settings,"
    "startseite,suche,weiterlesen,mehr erfahren,mehr lesen,mehr anzeigen,mehr dazu,jetzt kaufen,anmelden,"
    "registrieren,"
    "einloggen,nächste seite,zurück,nach oben,teilen,impressum,datenschutz,merken,drucken,"
    "accueil,rechercher,lire la suite,lire plus,en savoir plus,voir plus,voir tout,acheter,se connecter,connexion,"
    "s inscrire,page suivante,suivant,précédent,retour,haut de page,partager,mentions légales,télécharger,"
    "inicio,buscar,leer más,seguir leyendo,ver más,ver todo,saber más,comprar,comprar ahora,iniciar sesión,"
    "registrarse,"
    "siguiente,anterior,volver,volver arriba,compartir,descargar,contacto,"
    "leggi tutto,leggi di più,continua a leggere,scopri di più,vedi tutto,acquista,acquista ora,accedi,registrati,"
    "avanti,"
    "indietro,torna su,condividi,scarica,contatti,"
    "início,leia mais,ler mais,saiba mais,ver mais,ver tudo,comprar agora,entrar,iniciar sessão,próxima,voltar,"
    "voltar ao topo,compartilhar,partilhar,baixar,contato,"
    "zoeken,lees meer,lees verder,meer lezen,meer weergeven,meer info,koop nu,inloggen,aanmelden,volgende,vorige,"
    "terug naar boven,delen,sök,läs mer,läs vidare,visa mer,visa alla,köp nu,logga in,nästa,tillbaka,dela,"
    "søg,læs mere,læs videre,vis mere,vis alle,køb nu,log ind,næste,forrige,tilbage,søk,les mer,vis mer,kjøp nå,"
    "logg inn,"
    "neste,tilbake,hae,lue lisää,näytä lisää,osta nyt,kirjaudu,kirjaudu sisään,seuraava,edellinen,takaisin,jaa,"
    "szukaj,czytaj więcej,czytaj dalej,zobacz więcej,dowiedz się więcej,kup teraz,zaloguj się,następna,poprzednia,"
    "powrót,"
    "udostępnij,hledat,číst dále,číst více,zobrazit více,více informací,koupit,přihlásit se,další,předchozí,zpět,"
    "sdílet,"
    "keresés,tovább,bővebben,olvass tovább,részletek,bejelentkezés,következő,előző,vissza,megosztás,"
    "căutare,citește mai mult,citeste mai mult,vezi mai mult,cumpără,autentificare,înapoi,distribuie,"
    "devamını oku,daha fazla,satın al,giriş yap,sonraki,önceki,geri dön,paylaş,"
    "cari,baca selengkapnya,lihat semua,lihat lainnya,beli sekarang,masuk,daftar,selanjutnya,sebelumnya,kembali,"
    "bagikan,"
    "главная,поиск,читать далее,подробнее,показать еще,купить,войти,регистрация,далее,назад,поделиться,"
    "首页,搜索,阅读更多,阅读全文,查看更多,了解更多,更多,立即购买,登录,注册,下一页,上一页,返回,分享,分享到微博,"
    "検索,続きを読む,もっと見る,詳細を見る,今すぐ購入,ログイン,次へ,前へ,戻る,シェア,홈,검색,더 보기,더보기,"
    "자세히 보기,구매하기,"
    "로그인,다음,이전,공유하기,اقرأ المزيد,عرض المزيد,المزيد,بحث,تسجيل الدخول,التالي,السابق,مشاركة,"
    "อ่านต่อ,อ่านเพิ่มเติม,ดูเพิ่มเติม,ค้นหา,ซื้อเลย,เข้าสู่ระบบ,ถัดไป,और पढ़ें,और देखें,खोजें,खरीदें,लॉग इन,"
    "साझा करें"
)
_GENERIC = frozenset(f"{_GENERIC_TEXT},{_BUTTONS}".split(","))
_DANGLING = frozenset(["a", "an", "the", "and", "or", "with", "to", "of", "are", "his", "their", "its", "as"])
_STRANDED = re.compile(
    r"\b(?:an?|the|his|her|their) \w+ (?:that |which |whom? )?(?:an?|the|his|her|their|he|she|they|it) "
    r".*\w(?:ing|s|ed)(?: \w+)? (?:to|with|of)$",
    re.IGNORECASE,
)
"""The object of the last preposition stands before it: "the rope the dog is holding on to"."""


def other_script(captions: Sequence[str]) -> NDArray[np.object_]:
    """Why captions cannot be judged because too few others share their script; an empty text for the others.

    Args:
        captions: of each row; empty ones have no script.
    """
    scripts = [script_of(caption) for caption in captions]
    counts = Counter(filter(None, scripts))
    # the most frequent script can be judged, and so can others that are not rare
    most = counts.most_common(1)[0][0] if counts else None
    rare = {
        script for script, n in counts.items() if script != most and n < RARE_SCRIPT * sum(counts.values())
    }
    return np.array([f"a caption in {each} among others" if each in rare else "" for each in scripts], object)


def reasons_of(captions: Sequence[str], image_of: Int64Array, images: FloatArray) -> NDArray[np.object_]:
    """Name the reason of each pair, "" where no rule holds.

    Args:
        captions: text of each pair.
        image_of: int64 ``(n,)``, row of each pair's image.
        images: ``(n_images, dim)``, a vector of each image.
    """
    texts = [_text(caption) for caption in captions]
    plain = [" ".join(words(text)) for text in texts]
    main, language = languages(plain)
    stops = frozenset(STOP_WORDS.get(main, "").split())
    shown = [_URL.sub(" ", unescape(caption)) for caption in captions]
    cut = np.array([main == "en" and _is_cut_off(text) for text in texts], bool)
    if stops:
        cut |= cut_at_a_length(texts, plain)
    kinds = pd.factorize(np.array(plain, object))[0]
    holds = junk_of(shown, [_TAG.sub(" ", each) for each in shown], plain, stops) | {
        COPY: pd.DataFrame({"image": image_of, "caption": captions}).duplicated().to_numpy(),
        NO_WORDS: np.array([not terms(text) and not _URL.search(text) for text in texts], bool),
        BOILERPLATE: np.array(list(map(_is_boilerplate, captions, plain)), bool),
        REPEATED: _repeated(kinds, image_of),
        REPEATED_PICTURE: _repeated(image_of, kinds),
        LANGUAGE: np.array([each not in ("", main) for each in language], bool),
        CUT_OFF: cut,
        NEAR_EQUAL: _near_equal(plain, image_of, images),
    }
    named = [reason for reason in REASONS if reason in holds]
    reasons: NDArray[np.object_] = np.select([holds[reason] for reason in named], named, "").astype(object)
    return reasons


def _text(caption: str) -> str:
    """A caption of a web page as people read it."""
    return _TAG.sub(" ", unescape(caption))


def words(caption: str) -> list[str]:
    """Lower-case words of letters with their marks; parts of a URL are none."""
    return _WORD.findall(unicodedata.normalize("NFC", _URL.sub(" ", caption)).lower())


def _is_boilerplate(caption: str, plain: str) -> bool:
    bare = caption.strip()
    return not plain or plain in _GENERIC or bool(_FILE.fullmatch(bare) or _OF_A_PAGE.search(bare))


def _repeated(kinds: Int64Array, partners: Int64Array) -> BoolArray:
    """Captions on many different pictures, far more than others of the set, or pictures with many captions.

    Args:
        kinds: int64 ``(n,)``, number of each pair's caption, or of its picture.
        partners: int64 ``(n,)``, the other side.
    """
    # each partner once: five captions of one picture may be equal
    of_each = np.bincount(np.unique(np.stack([kinds, partners]), axis=1)[0])
    # a large set has more captions that are equal by chance
    least = max(FEWEST_PARTNERS, LEAST_PART * len(np.unique(partners)))
    usual = np.quantile(of_each[of_each > 0], 0.95, method="lower")
    many: BoolArray = (of_each >= np.maximum(least, OVER_USUAL * usual))[kinds]
    return many


def _is_cut_off(caption: str) -> bool:
    """Whether an English caption stops before its end: after an article or the like, or with dots."""
    bare = caption.rstrip()
    if bare.endswith(" A") and not bare.isupper():
        return False  # a letter, as in "vitamin A"
    last = words(bare)[-1:]
    cut = bare[-1:].isalpha() and bool(last) and last[0] in _DANGLING and not _STRANDED.search(bare)
    return cut or bare.endswith(("...", "…"))


def languages(plain: Sequence[str]) -> tuple[str, list[str]]:
    """The language of the set, "" where it is none of those known, and that of each caption, "" where unclear.

    A caption is of another script, or has two stop words of another language and none of the set's own.
    """
    lists = {name: frozenset(text.split()) for name, text in STOP_WORDS.items()}
    split = [each.split() for each in plain]
    marked = {name: np.mean([not stops.isdisjoint(each) for each in split]) for name, stops in lists.items()}
    # by all stop words: "a" alone marks every caption in Hungarian as English
    main = max(lists, key=lambda name: sum(len(lists[name].intersection(each)) for each in split))
    scripts = list(map(script_of, plain))
    usual = Counter(scripts).most_common(1)[0][0]
    if marked[main] < LEAST_MARKED or usual != LATIN:
        main = "" if usual in (LATIN, None) else usual
    foreign = []
    for each, own in zip(split, scripts, strict=True):
        if own and usual and own != usual:
            foreign.append(own)
        # a caption with one stop word of the set's language is of this language
        elif own == LATIN and main in lists and lists[main].isdisjoint(each):
            hits = {name: len(stops.intersection(each)) for name, stops in lists.items()}
            best = max(hits, key=lambda name: hits[name])
            foreign.append(best if hits[best] >= 2 else "")
        else:
            foreign.append("")
    return main, foreign


def _near_equal(plain: Sequence[str], image_of: Int64Array, images: FloatArray) -> BoolArray:
    """Pairs whose picture nearly equals another one that has none of its captions."""
    from sklearn.neighbors import NearestNeighbors

    used = np.unique(image_of)
    marked = np.zeros(len(image_of), bool)
    # every two pictures are compared, which grows with the square
    if len(used) > MOST_PICTURES:
        return marked
    of_image = pd.Series(plain).groupby(image_of).agg(set).to_dict()
    near = NearestNeighbors(metric="cosine", algorithm="brute").fit(np.asarray(images[used], np.float32))
    # in units of the set: drawings lie nearer to each other than photographs
    usual = np.median(near.kneighbors(n_neighbors=1)[0])
    near_equal: set[int] = set()
    neighbours = near.radius_neighbors(radius=NEAR * usual, return_distance=False)
    for one, others in zip(used.tolist(), neighbours, strict=True):
        for other in used[others].tolist():
            if of_image[one].isdisjoint(of_image[other]):
                near_equal |= {one, other}
    marked[np.isin(image_of, list(near_equal))] = True
    return marked
