"""Captions of no picture, made at random of six kinds: what crawlers and captioning models leave in a table."""


def pick(random, text):
    """One of several texts with a bar between them."""
    choices = text.split("|")
    return choices[int(random.integers(len(choices)))]


def filled(random, pattern):
    """Replace every ``#`` by a digit and every ``@`` by a capital letter."""
    letters = {"#": "0123456789", "@": "ABCDEFGHJKLMNPRSTVWXYZ"}
    return "".join(pick(random, "|".join(letters[each])) if each in letters else each for each in pattern)


def refusal(random):
    """What a model says of itself, or to its user."""
    return pick(
        random,
        "I'm sorry, but I can't help with identifying people in this picture.|I cannot view images, only text."
        "|As an AI developed to assist, I have no access to the photo."
        "|Unfortunately, the image did not load on my side."
        "|Could you please upload the picture again? I can't see it."
        "|I don't have enough information to write a caption."
        "|It seems that no picture was attached to your message.|I'm unable to describe faces of real people."
        "|Sorry, this request goes against our content policy.|My apologies, I am only able to process text."
        "|Please share the image and I will gladly caption it.|I won't be able to help with that image."
        "|I am a language model and cannot open links.|There is no image provided for me to describe."
        "|Sure! Here is a short caption for your photo:|I would need to see the photo to answer."
        "|I'm not able to determine what is shown here.|Let me know if you want a longer description."
        "|I do not see any attachment in this conversation.|This content may violate our safety guidelines.",
    ) + pick(random, "|| Thank you.| Is there anything else?")


def product(random):
    """Prices, sizes and numbers of articles."""
    return filled(
        random,
        pick(
            random,
            "$##.99|Now only €#9.95, was €#4.90|SKU: @@-####-#|Art.-Nr. ######|Item no. ###-####"
            "|£##.00 free delivery"
            "|ISBN 978-#-##-######-#|Model @@###@ 2##V|##x## cm, # kg, ref. ####|Price: ### USD per piece"
            "|EAN 40########### "
            "|#.### zł z VAT|Size L, @@####, 2 for $##|##% off - $##.## instead of $##.##|PN ####-@@#"
            "|Qty 1 @ $#.##"
            "|@@@-##-####-@|Order code ##@####|¥#,###|Rs. #,### MRP ####",
        ),
    )


def code(random):
    """Lines of programs, of a shell, of markup and of data."""
    return filled(
        random,
        pick(
            random,
            "for (int i = 0; i < n; i++) { sum += x[i]; }|def load(path): return open(path).read()"
            "|SELECT name FROM users WHERE id = ##;"
            "|import torch.nn as nn|$('#menu').toggle();|git commit -m 'fix'"
            '|{"width": ###, "height": ###}|body { margin: 0; color: #fff; }'
            '|console.log(items.length)|<img src="/a/#.jpg" alt="">'
            "|pip install --upgrade pillow|if (x == null) return;|print(f'{x:.2f}')"
            "|public static void main(String[] args)|const app = express();|np.zeros((##, ##))"
            "|docker run -it ubuntu bash"
            "|return self.model(x).logits|let x = await fetch(url)|try { open(); } catch (e) { log(e) }"
            "|x = [y for y in range(##)]",
        ),
    )


def credit(random):
    """Dates, times, and who holds the rights."""
    name = pick(random, "Maria Keller|J. Okafor|Tom Reed|Ana Souza|Lena Berg|Wei Zhang")
    month = pick(random, "January|March|June|October|Nov|Dec")
    return filled(
        random,
        pick(
            random,
            f"Photo by {name}|© 20## {name}|{month} 1#, 20##|20##-0#-1# 1#:4#:##|Image courtesy of {name}"
            f"|Credit: {name}/Reuters"
            f"|1#/0#/20##|Photo: {name}, {month} 20##|Photograph: {name} / Getty Images"
            f"|Copyright {name}. All rights reserved."
            f"|Posted on {month} 2#, 20##|1# {month} 20##, 0#:3# pm|via Shutterstock|{name} (CC BY-SA 4.0)"
            f"|Taken {month} #, 199#"
            f"|Picture by {name} for AFP|Uploaded 0#.1#.20##|Image credit: {name}|{month} 20##"
            f"|Published 20## by {name}",
        ),
    )


WORDS = (
    "dog grass park animal outdoor summer fun pet nature green beach water child happy family travel food kitchen red "
    "car street city night people sport ball team mountain snow winter tree "
    "sky cloud bike road background vector design stock isolated white"
)


def keywords(random):
    """Keywords, with one separator or none."""
    words = random.permutation(WORDS.split())[: random.integers(7, 12)]
    separator = pick(random, ", |, |; | / | #| ,| - | ")
    return (separator.strip() if separator == " #" else "") + separator.join(words)


def template(random):
    """What a prompt or a program leaves where a caption should stand."""
    return pick(
        random,
        "A photo of {object} in {place}|{caption}|[INSERT CAPTION HERE]|Caption: |None|undefined"
        "|a picture of null|<image> Describe this."
        "|Describe the image in one sentence.|### Response:|Assistant: a dog|{{ title }} - {{ site }}"
        "|</s></s>|nan|a photo of a {}"
        "|[INST] Write a caption [/INST]|Output: ${caption}|KeyError: 'caption'"
        "|Write a short caption for the picture below.|<caption>"
        "|Error: timeout while captioning|%s on a %s|User: what is in this picture?|[object Object]"
        "|You are a helpful captioner of images.",
    )


JUNK = {
    "refusal of a model": refusal,
    "price or number": product,
    "code": code,
    "date or credit": credit,
    "keyword list": keywords,
    "template error": template,
}
